"""The .proto, its generated module and everything that has to know every message agree."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from iop import settings
from iop.wire import runtime_pb2 as pb
from iop.wire import translate
from iop.wire.peer import RECEIVES, SENDS, Side
from iop.wire.protocol import HANDLERS

ROOT = Path(__file__).resolve().parents[2]
BODIES = {field.name: field.message_type.name for field in pb.Envelope.DESCRIPTOR.oneofs_by_name["body"].fields}
ON_THE_LINK_ITSELF = {"ping", "pong"}


def test_every_body_has_a_direction() -> None:
    """Each message has its place in the peer's tables, at exactly one side unless it belongs to both."""
    for kind in BODIES:
        receivers = [side for side in Side if kind in RECEIVES[side]]
        assert len(receivers) == (2 if kind in ON_THE_LINK_ITSELF else 1), kind
    for tables in (RECEIVES, SENDS):
        assert {kind for table in tables.values() for kind in table} == set(BODIES)


@pytest.mark.parametrize("side", Side)
def test_every_message_a_side_receives_has_a_handler_there(side: Side) -> None:
    assert set(HANDLERS[side]) == set(RECEIVES[side]) - ON_THE_LINK_ITSELF


def test_every_body_can_be_read_and_made() -> None:
    assert set(translate._DECODE) == set(BODIES) - {"run_event"}
    assert set(translate.KINDS.values()) == set(BODIES) - {"run_event", "run_request"}
    for kind, message in BODIES.items():
        assert message.lower() == kind.replace("_", "")


def test_every_body_has_its_message_in_the_source() -> None:
    source = (ROOT / "proto" / "iop" / "runtime.proto").read_text()
    for message in BODIES.values():
        assert re.search(rf"^message {message} \{{", source, re.MULTILINE), message


def test_the_hot_bodies_have_one_byte_tags() -> None:
    numbers = {field.name: field.number for field in pb.Envelope.DESCRIPTOR.fields}
    assert all(numbers[kind] < 16 for kind in ("run_event", "run_request", "run_window", "ping", "pong"))


def test_the_protobuf_requirement_is_the_compilers_generation() -> None:
    """Generated code refuses an older runtime, so the floor of the requirement is what the compiler wrote."""
    generated = (ROOT / "iop" / "wire" / "runtime_pb2.py").read_text()
    version = re.search(r"^# Protobuf Python Version: ([0-9.]+)$", generated, re.MULTILINE)
    assert version is not None
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    requirement = next(
        line for line in setup["options"]["install_requires"].splitlines() if line.startswith("protobuf")
    )
    floor = re.search(r">=\s*([0-9.]+)", requirement)
    assert floor is not None
    assert floor[1] == version[1]
    ceiling = re.search(r"<\s*([0-9]+)", requirement)
    assert ceiling is not None
    assert int(ceiling[1]) == int(version[1].split(".")[0]) + 1


@pytest.mark.parametrize("kind", sorted(settings.SETTINGS))
def test_an_adapters_settings_are_the_fields_of_its_message(kind: str) -> None:
    fields = {field.name for field in translate.BUILT_IN_SETTINGS[kind].DESCRIPTOR.fields}
    # a map by target is its own field on the wire, one setting in a file
    assert set(settings.SETTINGS[kind]["properties"]) == fields - {"context_sizes"}


def test_every_built_in_type_has_its_message() -> None:
    assert set(translate.BUILT_IN_SETTINGS) == set(settings.SETTINGS)
    settings_of_the_wire = {field.name for field in pb.AdapterConfig.DESCRIPTOR.oneofs_by_name["settings"].fields}
    assert settings_of_the_wire == {*settings.SETTINGS, "extension"}


@pytest.mark.parametrize("kind", sorted(settings.SETTINGS))
def test_numbers_that_may_be_zero_say_whether_they_are_there(kind: str) -> None:
    """0 is a setting (no limit), absent is the adapter's default: a field without presence would mix them up."""
    for name, schema in settings.SETTINGS[kind]["properties"].items():
        if schema.get("type") == "integer":
            assert translate.BUILT_IN_SETTINGS[kind].DESCRIPTOR.fields_by_name[name].has_presence, name
