"""What agents write, read line by line: what is shown, and what their end means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iop.errors import KINDS, Failure
from iop.model import Usage
from iop.node.adapters.cli.failures import sentence, tail
from iop.node.adapters.cli.formats import FORMATS, parser
from iop.settings import CLI_SETTINGS

TRANSCRIPTS = Path(__file__).parent / "transcripts"

CLAUDE, CODEX, GEMINI, OPENCODE = "claude_stream_json", "codex_jsonl", "gemini_stream_json", "opencode_json"
FORMAT_OF = {"claude": CLAUDE, "qwen": CLAUDE, "codex": CODEX, "gemini": GEMINI, "opencode": OPENCODE}
FIELDS = {"text": "message.content", "reasoning": "why", "session": "id", "error": "error", "output_tokens": "n.0"}


class Told(NamedTuple):
    text: str
    reasoning: str
    session: str
    usage: Usage | None
    failure: Failure | None


def read(
    output_format: str,
    lines: list[bytes],
    exit_status: int | None = 0,
    signal: int | None = None,
    stderr: str = "",
    fields: dict[str, str] | None = None,
) -> Told:
    reader = parser(output_format, fields or {})
    pieces = [piece for line in lines if (piece := reader.line(line)) is not None]
    ended = reader.end(exit_status, signal, stderr)
    failure = ended if isinstance(ended, Failure) else None
    if ended is not None and failure is None:
        pieces.append(ended)
    assert all(piece.text or piece.reasoning for piece in pieces)
    text = "".join(piece.text for piece in pieces)
    return Told(text, "".join(piece.reasoning for piece in pieces), reader.session, reader.usage, failure)


def transcript(name: str, *ended: Any) -> Told:
    lines = (TRANSCRIPTS / f"{name}.jsonl").read_bytes().splitlines()
    return read(FORMAT_OF[name.split("_")[0]], lines, *ended)


def claude(*events: Any, exit_status: int | None = 0, signal: int | None = None, stderr: str = "") -> Told:
    return read(CLAUDE, [json.dumps(event).encode() for event in events], exit_status, signal, stderr)


def delta(text: str) -> dict[str, Any]:
    inner = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
    return {"type": "stream_event", "event": inner}


def said(*texts: str, **message: Any) -> dict[str, Any]:
    blocks = [{"type": "text", "text": text} for text in texts]
    return {"type": "assistant", "message": {"content": blocks, **message}}


def result(text: str | None = None, **members: Any) -> dict[str, Any]:
    made = {"type": "result", "subtype": "success", "is_error": False, **members}
    return made if text is None else {**made, "result": text}


START = {
    "type": "stream_event",
    "event": {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
}
TOOL = {"type": "assistant", "message": {"content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]}}
TOOL_START = {"type": "stream_event", "event": {"type": "content_block_start", "content_block": {"type": "tool_use"}}}
TOOL_RESULT = {"type": "user", "message": {"content": [{"type": "tool_result", "content": "done"}]}}


def test_every_format_of_the_settings_has_a_parser() -> None:
    assert set(FORMATS) == set(CLI_SETTINGS["properties"]["output_format"]["enum"])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "claude_good",
            Told("I look it up.\n\nHigh tide is 2.1 m.", "A tide table?", "5e55-01", Usage(93, 12, 50, 4), None),
        ),
        ("claude_deltas", Told("Ahoy there.", "Short, then.", "5e55-02", Usage(5, 6), None)),
        ("qwen_deltas", Told("[Ahoy]", "", "q-1", Usage(90, 3, 8), None)),
        ("codex_good", Told("I run it.\n\nIt is 2.1 m.", "**Looking**", "0c0d-01", Usage(80, 9, 60, 2), None)),
        ("gemini_good", Told("I look it up.\n\nIt is 2.1 m.", "", "6e31-01", Usage(30, 3, 20), None)),
        ("opencode_good", Told("I look it up.\n\nIt is 2.1 m.", "A tool.", "ses_01", Usage(70, 16, 20, 3), None)),
    ],
)
@pytest.mark.parametrize("exit_status", [0, 1])
def test_good_transcripts(name: str, told: Told, exit_status: int) -> None:
    """CL-10: text once, tools not at all, messages apart. The agent's own result outweighs its exit status."""
    assert transcript(name, exit_status) == told


@pytest.mark.parametrize(
    ("name", "ended", "code", "http_status", "message"),
    [
        (
            "claude_api_error",
            (1,),
            "rate_limited",
            429,
            "the agent reached a rate limit: Request rejected (429) · slow down",
        ),
        ("claude_retries", (1,), "upstream_error", 502, "the agent's backend refused its credentials"),
        ("claude_interrupted", (0,), "upstream_error", 502, "the agent failed: it was interrupted"),
        ("claude_cut", (None, 9), "upstream_error", 502, "the agent was killed by SIGKILL"),
        ("claude_cut", (0,), "upstream_error", 502, "the agent ended without a result (exit status 0)"),
        ("qwen_api_error", (0,), "upstream_error", 502, "the agent failed: no such model"),
        ("qwen_newer_api_error", (1,), "upstream_error", 502, "the agent failed: no such model"),
        (
            "codex_api_error",
            (1,),
            "rate_limited",
            429,
            "the agent reached a rate limit: exceeded retry limit, last status: 429 Too Many Requests",
        ),
        (
            "codex_overflow",
            (1,),
            "context_length_exceeded",
            400,
            "Your input exceeds the context window of this model.",
        ),
        (
            "codex_retries",
            (0,),
            "upstream_error",
            502,
            "the agent failed: Reconnecting... waiting for network (Connection failed)",
        ),
        ("codex_retries", (None, 15), "upstream_error", 502, "the agent was killed by SIGTERM"),
        ("codex_cut", (None, 40), "upstream_error", 502, "the agent was killed by signal 40"),
        ("gemini_api_error", (147,), "upstream_error", 502, "the agent's backend refused its credentials"),
        ("gemini_interrupted", (0,), "upstream_error", 502, "the agent ended without a result (exit status 0)"),
        (
            "opencode_api_error",
            (1,),
            "rate_limited",
            429,
            "the agent reached a rate limit: Quota is used up, see [address]",
        ),
        ("opencode_unfinished", (0,), "upstream_error", 502, "the agent ended without a result (exit status 0)"),
    ],
)
def test_failed_transcripts(name: str, ended: tuple[Any, ...], code: str, http_status: int, message: str) -> None:
    """CL-01, CL-07: no result is an error whatever the exit status, and a fragment is no answer."""
    told = transcript(name, *ended)
    assert told.failure is not None
    assert (told.failure.code, told.failure.http_status, told.failure.message) == (code, http_status, message)
    assert not told.failure.retryable  # the agent may have done half of it
    assert told.session
    assert told.text in ("", "Half", "one two")


@pytest.mark.parametrize(
    ("output_format", "exit_status", "stderr"),
    [
        (CLAUDE, 1, "No conversation found with session ID: 2222-3333\n"),
        (CLAUDE, 1, "No saved session found with ID 2222. Run `qwen --resume` without an ID.\n"),
        (
            CODEX,
            1,
            "WARNING: x\nError: thread/resume: thread/resume failed: no rollout found for thread id 01 (code -3)\n",
        ),
        (OPENCODE, 1, "\x1b[91m\x1b[1mError: \x1b[0mSession not found\n"),
        (GEMINI, 42, 'Error resuming session: Invalid session identifier "22".\n  Searched in /home/a/.gemini.\n'),
        (GEMINI, 42, ""),
        ("text", 1, "No conversation found with session ID: 2222-3333\n"),
        ("jsonl", 1, "Session not found\n"),
    ],
)
def test_resuming_a_session_that_is_gone(output_format: str, exit_status: int, stderr: str) -> None:
    failure = read(output_format, [], exit_status, None, stderr).failure
    assert failure is not None
    assert (failure.code, failure.http_status) == ("session_gone", 410)


def test_a_session_that_is_gone_in_a_result() -> None:
    error = "No conversation found with session ID: 2222"
    told = claude(result(is_error=True, subtype="error_during_execution", errors=[error]), exit_status=1)
    assert told.failure is not None
    assert told.failure.code == "session_gone"


def test_gemini_refuses_other_input_with_42_too() -> None:
    failure = read(GEMINI, [], 42, None, "No input provided via stdin.").failure
    assert failure is not None
    assert failure.code == "upstream_error"


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([delta("Hel"), delta("lo"), said("Hello"), result("Hello")], "Hello"),
        ([said("Hello"), result("Hello")], "Hello"),
        ([result("Hello")], "Hello"),
        ([START, said("Hello"), result("Hello")], "Hello"),
        ([said("Hello"), TOOL, TOOL_RESULT, said("Hello"), result("Hello")], "Hello\n\nHello"),
        ([delta("Hello"), said("Hello"), delta("Hello"), said("Hello"), result("Hello")], "Hello\n\nHello"),
        ([said("Hello"), said("Hello"), result("Hello")], "Hello\n\nHello"),
        ([said("Hel", id="a"), said("Hello", id="a"), said("Hello", id="a"), result("Hello")], "Hello"),
        ([delta("Hel"), said("Hello", id="a"), result("Hello")], "Hello"),
        ([delta("A"), said("A", id="a"), delta("B"), said("B", id="b"), result("B")], "A\n\nB"),
        ([delta("A"), delta("B"), said("A", id="a"), said("B", id="a"), result("B")], "AB"),
        ([said("A", "B", id="a"), result("AB")], "AB"),
        ([delta("A"), TOOL_START, delta("B"), result("B")], "A\n\nB"),
        ([said("A\n", id="a"), said("B", id="b"), result("B")], "A\n\nB"),
        ([said("Look.", id="a"), TOOL, TOOL_RESULT, result("Found.")], "Look.\n\nFound."),
        ([said("Hello", id="a"), TOOL_RESULT, result("Hello")], "Hello"),
        ([said("Unasked", id="a", model="<synthetic>"), result("Hello")], "Hello"),
        ([{"type": "assistant", "message": {"content": "Hello"}}, result("Hello")], "Hello"),
        (
            [said("[API Error: is what it says](x)"), result("[API Error: is what it says](x)")],
            "[API Error: is what it says](x)",
        ),
        ([said("[API Error: x]", id="a"), said("Hello", id="b"), result("Hello")], "[API Error: x]\n\nHello"),
    ],
)
def test_text_is_shown_once(events: list[Any], text: str) -> None:
    """CL-10: deltas, snapshot and result describe one message; two messages with equal texts are two."""
    told = claude(*events)
    assert (told.text, told.failure) == (text, None)


def test_an_api_error_told_as_deltas_is_not_shown() -> None:
    """CL-07"""
    words = "[API Error: 429 slow down]"
    told = claude(delta(words[:3]), delta(words[3:]), said(words), result(words))
    assert told.text == ""
    assert told.failure is not None
    assert told.failure.code == "rate_limited"


@pytest.mark.parametrize(
    ("events", "ended", "http_status", "message"),
    [
        (
            [result("limit reached, resets at 13:00", is_error=True, api_error_status=429)],
            {},
            429,
            "the agent reached a rate limit: limit reached, resets at 13:00",
        ),
        (
            [result(subtype="error_max_turns", is_error=True, errors=["turn limit"])],
            {},
            502,
            "the agent failed: turn limit",
        ),
        ([result(subtype="error_max_turns", is_error=True)], {}, 502, "the agent failed: it reached its turn limit"),
        ([], {}, 502, "the agent ended without a result (exit status 0)"),
        (
            [],
            {"exit_status": 1, "stderr": "not logged in\n"},
            502,
            "the agent ended without a result (exit status 1): not logged in",
        ),
        ([result(is_error=True)], {"stderr": "Error: boom"}, 502, "the agent failed: Error: boom"),
        (
            [result("prompt is too long: 9 > 8", is_error=True, api_error_status=400)],
            {},
            400,
            "prompt is too long: 9 > 8",
        ),
    ],
)
def test_is_error_decides(events: list[Any], ended: dict[str, Any], http_status: int, message: str) -> None:
    """CL-07: neither the subtype nor the exit status, and the usage is known all the same."""
    told = claude(*[{**event, "usage": {"input_tokens": 3}} for event in events], **ended)
    assert told.text == ""
    assert told.failure is not None
    assert (told.failure.http_status, told.failure.message) == (http_status, message)
    assert told.usage == (Usage(3) if events else None)


def test_gemini_messages_that_come_whole() -> None:
    """CL-10"""
    lines = [
        b'{"type":"message","role":"assistant","content":"Hel","delta":true}',
        b'{"type":"message","role":"assistant","content":"Hello"}',
        b'{"type":"message","role":"assistant","content":"Hello"}',
        b'{"type":"error","severity":"warning","message":"loop detected"}',
        b'{"type":"result","status":"error"}',
    ]
    told = read(GEMINI, lines)
    assert told.text == "Hello\n\nHello"
    assert told.failure is not None
    assert told.failure.message == "the agent failed: loop detected"
    assert read(GEMINI, [*lines[:4], b'{"type":"result","status":"success"}']).failure is None


def test_noise_around_the_events() -> None:
    """CL-02: banners, escape codes, other JSON and unknown events are passed over; stderr is never believed."""
    lines = [
        b"Now using node v22.1",
        b'\x1b[?2004h{"type":"system","subtype":"init","session_id":"s1"}',
        b"",
        b"[1,2]",
        b"null",
        b'{"type":"brand_new_event","x":1}',
        b'{"type":["result"],"result":"WRONG"}',
        b'{"type":"result","result":"WRONG"} is what I would print',
        b'\x1b]0;agent ready\x07{"result":"fine \\u001b[1mhere\\u001b[0m \x1b[2mtoo","type":"result"}\x1b[0m\r',
    ]
    wrong = '{"type":"result","subtype":"success","is_error":false,"result":"WRONG"}\n'
    told = read(CLAUDE, lines, 0, None, wrong)
    assert told == Told("fine \x1b[1mhere\x1b[0m \x1b[2mtoo", "", "s1", None, None)


def test_a_long_line() -> None:
    """CL-01: 300 KiB in one line."""
    long = {"type": "user", "message": {"content": [{"type": "tool_result", "content": "A" * 300 * 1024}]}}
    assert claude(long, result("fine")).text == "fine"


def test_an_array_of_events_in_one_line() -> None:
    events = [{"type": "system", "session_id": "q-9"}, said("Hello"), result("Hello")]
    assert read(CLAUDE, [json.dumps(events).encode()])[:3] == ("Hello", "", "q-9")


@pytest.mark.parametrize("id", ["--help", "", "a b", "a\nb", "x" * 300, 7, None, "../../x"])
def test_a_session_id_that_may_not_become_an_argument(id: Any) -> None:
    assert claude({"type": "system", "session_id": id}, result("x")).session == ""


def test_the_first_session_id_counts() -> None:
    assert claude({"type": "system", "session_id": "a"}, {**result("x"), "session_id": "b"}).session == "a"


def test_text() -> None:
    """CL-02: without escape codes, and without the empty lines around it."""
    lines = [b"\x1b[0m", b"\x1b[1mone\x1b[0m\r", b"", b"  two \xe9\x82\xa3", b"bad \xff", b"", b""]
    assert read("text", lines) == Told("one\n\n  two 那\nbad \ufffd", "", "", None, None)
    assert read("text", []).failure is None


@pytest.mark.parametrize(
    ("exit_status", "signal", "stderr", "message"),
    [
        (1, None, "", "the agent failed (exit status 1): API Error: 400 nope"),
        (3, None, "> build · m1\nError: no key\n", "the agent failed (exit status 3): Error: no key"),
        (None, 2, "", "the agent was killed by SIGINT"),
        (None, None, "", "the agent failed: API Error: 400 nope"),
    ],
)
def test_text_of_a_program_that_failed(exit_status: int, signal: int, stderr: str, message: str) -> None:
    """CL-07"""
    failure = read("text", [b"API Error: 400 nope"], exit_status, signal, stderr).failure
    assert failure is not None
    assert failure.message == message


def test_fields() -> None:
    lines = [
        b'{"id":"s-1","why":"hm","message":{"content":"Hel"}}',
        b'{"message":{"content":"lo"},"error":null,"n":[4]}',
        b'{"message":["x"],"n":{"0":true}}',
    ]
    assert read("jsonl", lines, fields=FIELDS) == Told("Hello", "hm", "s-1", Usage(None, 4), None)


@pytest.mark.parametrize(
    ("line", "exit_status", "code", "message"),
    [
        (b'{"message":{"content":"x"},"error":"boom"}', 0, "upstream_error", "the agent failed: boom"),
        (
            b'{"error":{"message":"slow down","code":429}}',
            0,
            "rate_limited",
            "the agent reached a rate limit: slow down",
        ),
        (b'{"message":{"content":"x"}}', 1, "upstream_error", "the agent ended without a result (exit status 1)"),
        (b'{"message":{"content":7}}', 0, "upstream_error", "the agent ended without a result (exit status 0)"),
        (b'{"error":true}', 0, "upstream_error", "the agent failed"),
    ],
)
def test_fields_of_a_program_that_failed(line: bytes, exit_status: int, code: str, message: str) -> None:
    """CL-07"""
    failure = read("jsonl", [line], exit_status, fields=FIELDS).failure
    assert failure is not None
    assert (failure.code, failure.message) == (code, message)


def test_characters_are_whole() -> None:
    """UTF-01: halves of a character in two deltas are one; what is no character is U+FFFD."""
    halves = [rb'{"message":{"content":"\u90a3\ud83c"}}', rb'{"message":{"content":"\udf0d\u00e9"}}']
    assert read("jsonl", halves, fields=FIELDS).text == "那🌍é"
    assert read("jsonl", [rb'{"message":{"content":"a\udf0db"}}'], fields=FIELDS).text == "a\ufffdb"
    assert read("jsonl", [b'{"message":{"content":"a\xffb\xe9\x82\xa3"}}'], fields=FIELDS).text == "a\ufffdb那"
    event = delta("x")
    event["event"]["delta"]["text"] = "\ud83c"
    assert claude(event, delta("\udf0d"), said("🌍"), result("🌍")).text == "🌍"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("cannot read '/home/ann/my files/x.json'", "cannot read [path]"),
        ("no such file: /srv/agent/key.pem.", "no such file: [path]"),
        ("see ~/.agent/log and C:\\Users\\ann\\log", "see [path] and [path]"),
        ("cd: /work: No such file", "cd: [path]: No such file"),
        ("not logged in · Please run /login", "not logged in · Please run /login"),
        ("thread/resume failed, and/or 1/5", "thread/resume failed, and/or 1/5"),
        ("connect ECONNREFUSED 127.0.0.1:4010", "connect ECONNREFUSED [address]"),
        ("getaddrinfo ENOTFOUND api.inner.example", "getaddrinfo ENOTFOUND [address]"),
        ("connect ::1 at 13:00:05", "connect [address] at 13:00:05"),
        ("key sk-proj-abcdef123 is wrong, Bearer abc.def", "key [hidden] is wrong, [hidden]"),
        ("thread 01a22995-7c43-7bb3-ab00-ae092ae5a6bd", "thread [hidden]"),
        ("model claude-sonnet-4-5-20250929 is unknown", "model claude-sonnet-4-5-20250929 is unknown"),
        ("two\nlines\x1b[1m and\ta tab\x00", "two lines and a tab?"),
        ("<html>", ""),
        ("Traceback (most recent call last):\n  File", ""),
        ("word " * 200, "word " * 59 + "word…"),
    ],
)
def test_words_fit_for_a_client(words: str, shown: str) -> None:
    assert sentence(words) == shown


def test_the_tail_of_stderr() -> None:
    """CL-04: the last lines, without frames and warnings, from the error on where one stands out."""
    assert tail("one\ntwo\nthree\nfour\n") == "two; three; four"
    assert (
        tail("Error: bad config\n    at run (file:///srv/x.js:1:2)\nHow to fix: y\n")
        == "Error: bad config; How to fix: y"
    )
    assert tail("WARNING: x\nReading additional input from stdin...\n}\n\n") == ""
    assert len(tail("x" * 100_000)) <= 301


# As a list it takes a page.
MEMBERS = (  # noqa: SIM905
    "type event message content delta content_block text thinking id item part usage tokens cache stats error data "
    "result is_error errors subtype role session_id"
).split()
TYPES = sorted(
    {
        json.loads(line)["type"]
        for path in TRANSCRIPTS.glob("*.jsonl")
        if not path.stem.endswith("_cut")
        for line in path.read_bytes().splitlines()
    }
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.sampled_from(["error", "text"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    max_leaves=12,
)
EVENTS = st.builds(
    lambda kind, rest: json.dumps({**rest, "type": kind}).encode(),
    st.sampled_from(TYPES),
    st.dictionaries(st.sampled_from(MEMBERS), VALUES),
)
NASTY = st.sampled_from([b"{" * 5000, b"[" * 5000, b"\x1b]", b'{"a":' + b"9" * 5000 + b"}"])


@given(
    st.sampled_from(sorted(FORMATS)),
    st.lists(st.binary(max_size=30) | EVENTS | NASTY),
    st.none() | st.integers(0, 255),
    st.none() | st.integers(1, 70),
    st.text(max_size=30),
)
def test_garbage_never_raises(
    output_format: str, lines: list[bytes], exit_status: int | None, signal: int | None, stderr: str
) -> None:
    """CL-02, UTF-01: whatever a program writes, what is shown is text, and a failure has a code."""
    told = read(output_format, lines, exit_status, signal, stderr, FIELDS)
    assert (told.text + told.reasoning).encode() is not None
    assert told.failure is None or told.failure.code in KINDS


@pytest.mark.parametrize(
    ("stderr", "shown"),
    [
        (
            'Traceback (most recent call last):\n  File "/a/a.py", line 7, in run\n    int("x")\nValueError: not 7\n',
            "ValueError: not 7",
        ),
        ("boom\n    at run (/a/b.js:1:2)\n    at main (/a/b.js:3:4)\n", "boom"),
        ("not logged in\n", "not logged in"),
    ],
)
def test_a_traceback_on_stderr_is_not_shown_but_for_its_end(stderr: str, shown: str) -> None:
    assert tail(stderr) == shown
