"""Between protobuf and the values of :mod:`iop.model`. Only :mod:`iop.wire` sees protobuf.

``encode`` turns a value into the bytes of an Envelope, ``decode`` an Envelope into ``(kind, value)``; kinds are the
field names of the Envelope's ``body``. Runs have a module of their own, :mod:`iop.wire.runs`; its names are here too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from iop import model as m
from iop.wire import runtime_pb2 as pb
from iop.wire.frames import clean_text
from iop.wire.runs import DELTA, Malformed, decode_event, decode_run, encode_event, encode_run

__all__ = ["DELTA", "Malformed", "decode", "decode_event", "encode", "encode_event", "encode_run", "parse"]

_FROM_STRING = pb.Envelope.FromString

_SECONDS: Final = re.compile(r"-?[0-9]{1,10}")

BUILT_IN_SETTINGS: Final = {
    "openai_compat": pb.OpenAICompatAdapterConfig,
    "ollama": pb.OllamaAdapterConfig,
    "cli": pb.CliAdapterConfig,
}
"""Adapter types whose settings have a message of their own; others travel as JSON."""


def parse(frame: bytes) -> tuple[str | None, pb.Envelope]:
    """Return the body's kind (None: unknown or empty) and the Envelope; :raises Malformed:."""
    try:
        envelope = _FROM_STRING(frame)
    except (DecodeError, UnicodeDecodeError) as error:
        raise Malformed("not an envelope") from error
    return envelope.WhichOneof("body"), envelope


def unknown_kind(envelope: pb.Envelope) -> str:
    """Name an unknown body for the log: its field number, or ``empty``."""
    numbers = [field.field_number for field in UnknownFieldSet(envelope)]  # type: ignore[attr-defined]
    return f"field {numbers[0]}" if numbers else "empty"


# ---- configuration ----------------------------------------------------------------------------------------------


def _adapter_to_pb(adapter: m.AdapterConfig) -> pb.AdapterConfig:
    made = pb.AdapterConfig(name=adapter.name, type=adapter.type, enabled=adapter.enabled)
    settings = {key: value for key, value in adapter.settings.items() if value is not None}
    message = BUILT_IN_SETTINGS.get(adapter.type)
    if message is None:
        made.extension = json.dumps(settings, ensure_ascii=False).encode("utf-8", "surrogatepass")
    else:
        if isinstance(settings.get("context_size"), Mapping):
            settings["context_sizes"] = settings.pop("context_size")
        if isinstance(settings.get("keep_alive"), int):
            settings["keep_alive"] = str(settings["keep_alive"])
        getattr(made, adapter.type).CopyFrom(message(**settings))
    return made


def _json_object(text: bytes) -> dict[str, Any]:
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed("an adapter's settings are not JSON") from error
    if not isinstance(settings, dict):
        raise Malformed("an adapter's settings are not an object")
    return settings


def _adapter(made: pb.AdapterConfig) -> m.AdapterConfig:
    kind = made.WhichOneof("settings")
    settings: dict[str, Any] = {}
    if kind == "extension":
        settings = _json_object(made.extension)
    elif kind is not None:
        for field, value in getattr(made, kind).ListFields():
            is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
            settings[field.name] = dict(value) if is_map else list(value) if field.is_repeated else value
        if "context_sizes" in settings:
            settings["context_size"] = settings.pop("context_sizes")
        if _SECONDS.fullmatch(settings.get("keep_alive", "")):
            settings["keep_alive"] = int(settings["keep_alive"])
    return m.AdapterConfig(made.name, made.type, made.enabled, settings)


def payload_to_pb(payload: m.NodePayload) -> pb.NodeConfigPayload:
    """Return a payload as its message; its ``ByteSize()`` says whether it fits a frame."""
    return pb.NodeConfigPayload(
        revision=payload.revision,
        adapters=[_adapter_to_pb(adapter) for adapter in payload.adapters],
        providers=[
            pb.ProviderConfig(
                id=p.id,
                adapter=p.adapter,
                type=p.type,
                provider=p.provider,
                models=p.models,
                health=pb.ProviderHealthConfig(
                    interval_ms=p.health.interval_ms, path=p.health.path, timeout_ms=p.health.timeout_ms
                ),
                lifecycle=pb.ProviderLifecycleConfig(managed=p.lifecycle.managed),
            )
            for p in payload.providers
        ],
        runtime=pb.NodeRuntimeConfig(concurrency=payload.concurrency),
    )


def _payload(made: pb.NodeConfigPayload) -> m.NodePayload:
    return m.NodePayload(
        revision=made.revision,
        adapters=tuple(_adapter(adapter) for adapter in made.adapters),
        providers=tuple(
            m.ProviderConfig(
                id=p.id,
                adapter=p.adapter,
                type=p.type,
                provider=p.provider,
                models=tuple(p.models),
                health=m.HealthCheck(p.health.interval_ms, p.health.path, p.health.timeout_ms),
                lifecycle=m.Lifecycle(p.lifecycle.managed),
            )
            for p in made.providers
        ),
        concurrency=made.runtime.concurrency,
    )


# ---- reports of the queries -------------------------------------------------------------------------------------


def _report_to_pb(response: m.NodeCommandResponse) -> pb.NodeCommandResponse:
    made = pb.NodeCommandResponse(
        request_id=response.request_id, error=clean_text(response.error), truncated=response.truncated
    )
    for word, report in response.report.items():
        field = made.DESCRIPTOR.fields_by_name[word]
        report_type = getattr(pb, field.message_type.name)  # type: ignore[union-attr]
        getattr(made, word).CopyFrom(report_type(**_cleaned(report)))
    return made


def _cleaned(value: Any) -> Any:
    """A report whose texts a message can carry."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {name: _cleaned(each) for name, each in value.items()}
    return [_cleaned(each) for each in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    """A report's message as dictionaries and lists, defaults included."""
    if not hasattr(value, "DESCRIPTOR"):
        return value
    fields = value.DESCRIPTOR.fields
    return {
        f.name: [_plain(v) for v in got] if f.is_repeated else _plain(got)
        for f in fields
        for got in [getattr(value, f.name)]
    }


def _report(made: pb.NodeCommandResponse) -> m.NodeCommandResponse:
    word = made.WhichOneof("report")
    report = {} if word is None else {word: _plain(getattr(made, word))}
    return m.NodeCommandResponse(made.request_id, made.error, made.truncated, report)


# ---- the tables -------------------------------------------------------------------------------------------------


def _enum(enum: Any, value: int, what: str) -> str:
    if value == 0 or value not in enum.values():
        raise Malformed(f"{what} means nothing")
    return str(enum.Name(value))


_ENCODE: Final[Mapping[type, tuple[str, Callable[[Any], Any]]]] = {
    m.RunInput: ("run_input", lambda v: pb.RunInput(run_id=v.run_id, data=v.data)),
    m.RunWindow: ("run_window", lambda v: pb.RunWindow(run_id=v.run_id, add_bytes=v.add_bytes)),
    m.CancelRequest: (
        "cancel_request",
        lambda v: pb.CancelRequest(
            request_id=v.request_id, action=v.action.value, run_id=v.run_id, adapter=v.adapter, session_id=v.session_id
        ),
    ),
    m.CancelResponse: (
        "cancel_response",
        lambda v: pb.CancelResponse(request_id=v.request_id, found=v.found, message=clean_text(v.message)),
    ),
    m.NodeCommandRequest: (
        "node_command_request",
        lambda v: pb.NodeCommandRequest(request_id=v.request_id, type=v.type),
    ),
    m.NodeCommandResponse: ("node_command_response", _report_to_pb),
    m.NodeConfigRefreshRequest: (
        "node_config_refresh_request",
        lambda v: pb.NodeConfigRefreshRequest(request_id=v.request_id, payload=payload_to_pb(v.payload)),
    ),
    m.NodeConfigRefreshResponse: (
        "node_config_refresh_response",
        lambda v: pb.NodeConfigRefreshResponse(
            request_id=v.request_id,
            revision=v.revision,
            status=v.status.value,
            message=clean_text(v.message),
            changed_adapters=v.changed_adapters,
            failed_adapters=v.failed_adapters,
        ),
    ),
    m.RegisterRequest: (
        "register_request",
        lambda v: pb.RegisterRequest(
            token=v.token,
            protocol_version=v.protocol_version,
            agent_version=v.agent_version,
            instance_id=v.instance_id,
            hostname=clean_text(v.hostname),
            platform=v.platform,
            adapter_types=v.adapter_types,
        ),
    ),
    m.RegisterResponse: (
        "register_response",
        lambda v: pb.RegisterResponse(
            accepted=v.accepted,
            reason=v.reason,
            message=v.message,
            node_id=v.node_id,
            alias=v.alias,
            heartbeat_ms=v.heartbeat_ms,
            max_frame_bytes=v.max_frame_bytes,
            config=payload_to_pb(v.config),
        ),
    ),
    m.ProviderStatus: (
        "provider_status",
        lambda v: pb.ProviderStatus(
            provider_id=v.provider_id, health=v.health, message=clean_text(v.message), models=map(clean_text, v.models)
        ),
    ),
    m.NodeDraining: ("node_draining", lambda v: pb.NodeDraining()),
    m.Ping: ("ping", lambda v: pb.Ping(nonce=v.nonce)),
    m.Pong: ("pong", lambda v: pb.Pong(nonce=v.nonce)),
}

_DECODE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "run_request": decode_run,
    "run_input": lambda v: m.RunInput(v.run_id, v.data),
    "run_window": lambda v: m.RunWindow(v.run_id, v.add_bytes),
    "cancel_request": lambda v: m.CancelRequest(
        v.request_id,
        m.CancelAction(_enum(pb.CancelRequest.Action, v.action, "a cancel's action")),
        v.run_id,
        v.adapter,
        v.session_id,
    ),
    "cancel_response": lambda v: m.CancelResponse(v.request_id, v.found, v.message),
    "node_command_request": lambda v: m.NodeCommandRequest(
        v.request_id, pb.NodeCommandRequest.Type.Name(v.type) if v.type in pb.NodeCommandRequest.Type.values() else ""
    ),
    "node_command_response": _report,
    "node_config_refresh_request": lambda v: m.NodeConfigRefreshRequest(v.request_id, _payload(v.payload)),
    "node_config_refresh_response": lambda v: m.NodeConfigRefreshResponse(
        v.request_id,
        v.revision,
        m.RefreshStatus(_enum(pb.NodeConfigRefreshResponse.Status, v.status, "a refresh's status")),
        v.message,
        tuple(v.changed_adapters),
        tuple(v.failed_adapters),
    ),
    "register_request": lambda v: m.RegisterRequest(
        v.token,
        v.protocol_version,
        v.agent_version,
        v.instance_id,
        v.hostname,
        v.platform,
        tuple(v.adapter_types),
    ),
    "register_response": lambda v: m.RegisterResponse(
        v.accepted, v.reason, v.message, v.node_id, v.alias, v.heartbeat_ms, v.max_frame_bytes, _payload(v.config)
    ),
    "provider_status": lambda v: m.ProviderStatus(v.provider_id, v.health, v.message, tuple(v.models)),
    "node_draining": lambda v: m.NodeDraining(),
    "ping": lambda v: m.Ping(v.nonce),
    "pong": lambda v: m.Pong(v.nonce),
}

KINDS: Final[Mapping[type, str]] = {made: kind for made, (kind, _) in _ENCODE.items()}


def encode(value: Any) -> bytes:
    """Return the bytes of the Envelope that carries ``value``."""
    kind, to_pb = _ENCODE[type(value)]
    return pb.Envelope(**{kind: to_pb(value)}).SerializeToString()


def decode(kind: str, envelope: pb.Envelope) -> Any:
    """Return the value in an Envelope of that ``kind``: for ``run_request`` the request and its whole input's size.

    :raises Malformed: when it holds a value that means nothing.
    """
    try:
        return _DECODE[kind](getattr(envelope, kind))
    except ValueError as error:
        raise Malformed(f"{kind} holds a value that means nothing") from error
