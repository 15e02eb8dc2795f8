"""What a node is told on its command line: its token, its workspace roots, and errors as sentences."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.python import usage

from iop.errors import Failure
from iop.node import tap
from iop.node.config import CREDENTIAL, LONGEST_TOKEN, NodeSettings, edge_endpoint, read_token, roots


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("tok-A1\n")
    return path


def refused(token_file: object = None, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(Failure) as raised:
        read_token(None if token_file is None else str(token_file), environ or {})
    assert raised.value.code == "invalid_value"
    return raised.value.message


def test_the_file_goes_first(token_file: Path) -> None:
    assert read_token(str(token_file), {"IOP_NODE_TOKEN": "other"}) == "tok-A1"


def test_the_environment_goes_before_the_credential(tmp_path: Path) -> None:
    (tmp_path / CREDENTIAL).write_text("of-systemd\n")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert read_token(None, environ) == "of-systemd"
    assert read_token(None, {**environ, "IOP_NODE_TOKEN": " of-the-environment\n"}) == "of-the-environment"
    assert read_token(None, {**environ, "IOP_NODE_TOKEN": ""}) == "of-systemd"


def test_no_token_at_all(tmp_path: Path) -> None:
    for environ in ({}, {"CREDENTIALS_DIRECTORY": str(tmp_path)}):
        message = refused(None, environ)
        assert all(way in message for way in ("--token-file", "IOP_NODE_TOKEN", CREDENTIAL))


@pytest.mark.parametrize("text", ["", " \n", "two tokens", "two\ntokens\n"])
def test_a_file_that_holds_no_single_token(token_file: Path, text: str) -> None:
    token_file.write_text(text)
    message = refused(token_file)
    assert str(token_file) in message
    assert "one token" in message


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path, token_file: Path) -> None:
    assert "No such file" in refused(tmp_path / "nothing")
    assert "directory" in refused(tmp_path)
    token_file.write_bytes(b"\xff\xfe")
    assert "not text" in refused(token_file)


def test_a_token_that_is_some_other_file(token_file: Path) -> None:
    token_file.write_text("a" * LONGEST_TOKEN)
    assert len(read_token(str(token_file), {})) == LONGEST_TOKEN
    token_file.write_text("a" * (LONGEST_TOKEN + 1))
    assert "longer than 4 KiB" in refused(token_file)


@pytest.mark.parametrize("value", ["two tokens", " ", "\udcff", "bell\a"])
def test_an_environment_that_holds_no_single_token(value: str) -> None:
    message = refused(None, {"IOP_NODE_TOKEN": value})
    assert "IOP_NODE_TOKEN" in message
    assert "one token" in message


def test_a_message_never_holds_the_token(token_file: Path) -> None:
    token_file.write_text("secret one\n")
    assert "secret" not in refused(token_file)
    assert "secret" not in refused(None, {"IOP_NODE_TOKEN": "secret one"})


def test_settings_do_not_show_the_token() -> None:
    assert "tok-A1" not in repr(NodeSettings("tcp:e:1", "tok-A1"))


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("127.0.0.1:4610", "write tcp:127.0.0.1:4610"),
        ("edge.example:4610", "write tcp:edge.example:4610"),
        ("https://edge.example:4600/v1", "no URL; write tcp:HOST:PORT or tls:HOST:PORT"),
        ("http://edge.example", "no URL"),
        ("tcp:127.0.0.1", "needs its port"),
        ("tcp:127.0.0.1:0", "from 1 to 65535"),
        ("tcp:127.0.0.1:70000", "from 1 to 65535"),
        ("tls:e:4610x", "from 1 to 65535"),
        ("tcp:[::1]:4610", r"'tcp:\:\:1:4610'"),
        ("tls:[fe80::1]", r"'tls:fe80\:\:1:PORT'"),
        ("[::1]:4610", r"'tcp:\:\:1:4610'"),
        ("nonsense", "begins with one of tcp:, tls:, unix:"),
    ],
)
def test_an_endpoint_that_is_none(text: str, advice: str) -> None:
    with pytest.raises(Failure, match="--edge is not a client endpoint") as raised:
        edge_endpoint(text)
    assert advice in raised.value.message


@pytest.mark.parametrize("text", ["tcp:h:1", r"tcp:\:\:1:4610", "tls:h:4610:trustRoots=/ca", "unix:/run/x"])
def test_an_endpoint(text: str) -> None:
    assert edge_endpoint(text) == text


def test_workspace_roots_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert roots([str(tmp_path / "link")]) == (tmp_path / "real",)
    with pytest.raises(Failure, match="not a directory"):
        roots([str(tmp_path / "nothing")])


# ---- twistd's options


def options(*arguments: str) -> tap.Options:
    made = tap.Options()
    made.parseOptions(list(arguments))
    return made


def test_options(tmp_path: Path, token_file: Path) -> None:
    (tmp_path / "work").mkdir()
    made = options(
        "--edge", "tcp:127.0.0.1:4610",
        "--token-file", str(token_file),
        "--state-dir", str(tmp_path / "state"),
        "--workspace-root", str(tmp_path / "work"),
    )  # fmt: skip
    assert made["settings"] == NodeSettings("tcp:127.0.0.1:4610", "tok-A1", tmp_path / "state", (tmp_path / "work",))
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "--edge ENDPOINT is needed"),
        (("--edge", "nonsense"), "not a client endpoint"),
        (("--edge", "tcp:127.0.0.1:4610:bogus=1"), "not a client endpoint"),
        (("--edge", "ssl:127.0.0.1:4610"), "use tls:HOST:PORT"),
        (("--edge", "tls:127.0.0.1:4610:trustRoots=/dev/null/x"), "Not a directory: '/dev/null/x'"),
        (("tcp:127.0.0.1:4610",), "did you mean --edge tcp:127.0.0.1:4610"),
        (
            ("--edge", "tcp:127.0.0.1:4610", "--workspace-root", "/dev/null/nowhere"),
            "--workspace-root is not a directory",
        ),
    ],
)
def test_usage_errors_are_sentences(
    tmp_path: Path, token_file: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(usage.UsageError, match=sentence):
        options("--token-file", str(token_file), "--state-dir", str(tmp_path / "state"), *arguments)


def test_a_token_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(usage.UsageError, match="--token-file cannot be read: No such file"):
        options("--edge", "tcp:h:1", "--token-file", str(tmp_path / "none"), "--state-dir", str(tmp_path / "state"))


def test_a_state_dir_that_cannot_be_made_is_a_usage_error(token_file: Path) -> None:
    with pytest.raises(usage.UsageError, match="--state-dir cannot be made"):
        options("--edge", "tcp:h:1", "--token-file", str(token_file), "--state-dir", str(token_file / "below"))


def test_a_state_directory_is_one_nodes_alone(tmp_path: Path) -> None:
    held = tap.alone(tmp_path / "state")
    with pytest.raises(Failure, match=r"another node uses the state directory .*/state: .*--state-dir"):
        tap.alone(tmp_path / "state")
    held.close()  # as its process's end would
    tap.alone(tmp_path / "state").close()


def test_a_state_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match=r"the state directory .*/file cannot be used: "):
        tap.alone(tmp_path / "file")
