"""Answers of the Messages API: a message, the events of one, and what Anthropic's own SDK makes of both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import Message
from hypothesis import given
from hypothesis import strategies as st

from iop import model as m
from iop.edge.surfaces.openai.apis.messages_answer import MessagesDocument, MessagesStream
from iop.edge.surfaces.openai.apis.messages_errors import error_document, error_event
from iop.edge.surfaces.openai.apis.reading import LARGEST
from iop.errors import Failure
from iop.http import sse

TOOLS = {"tide": {"type": "object"}}
FALLBACK = {m.TEXT_TOOL_FALLBACK: "true"}
USAGE = m.Usage(9, 4, 3, 2)
COUNTED = {
    "input_tokens": 6,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 3,
    "output_tokens": 4,
    "output_tokens_details": {"thinking_tokens": 2},
    "cache_creation": None,
    "inference_geo": None,
    "server_tool_use": None,
    "service_tier": None,
}
NOTHING = COUNTED | {
    "input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
    "output_tokens_details": None,
}
UNSAID = {"stop_sequence": None, "stop_details": None, "container": None}
SAID = '<tool_call>{"name": "tide", "arguments": {"port": "Oban"}}</tool_call>'

Event = tuple[str, dict[str, Any]]


def text(words: str) -> m.Delta:
    return m.Delta(text=words)


def thought(words: str) -> m.Delta:
    return m.Delta(reasoning=words)


def end(reason: str = "stop", usage: m.Usage | None = None, **calls: str) -> m.Complete:
    """Return an ending; calls by id, each with its arguments."""
    made = [{"id": id, "function": {"name": "tide", "arguments": arguments}} for id, arguments in calls.items()]
    return m.Complete(reason, usage, {m.TOOL_CALLS: json.dumps(made)} if made else {})


def streamed(deltas: Sequence[m.Delta], complete: m.Complete, start: m.Start | None = None) -> bytes:
    stream = MessagesStream("msg_1", "m", lambda: TOOLS)
    stream.started(start or m.Start())
    return b"".join(map(stream.delta, deltas)) + stream.completed(complete)


def document(deltas: Sequence[m.Delta], complete: m.Complete, start: m.Start | None = None) -> dict[str, Any]:
    made = MessagesDocument("msg_1", "m", lambda: TOOLS)
    made.started(start or m.Start())
    assert not any(made.delta(delta) for delta in deltas)
    message = json.loads(made.completed(complete))
    assert isinstance(message, dict)
    return message


def events(data: bytes) -> list[Event]:
    found = []
    for block in sse.blocks(data):
        name, _ = block.split(b"\n", 1)
        said = json.loads(sse.data_of(block) or b"")
        assert name == b"event: " + said["type"].encode()
        found.append((said["type"], said))
    return found


GROWS = {"text": ("text_delta",), "thinking": ("thinking_delta", "signature_delta"), "tool_use": ("input_json_delta",)}


def check(found: list[Event]) -> None:
    """Say whether events are a message: each block opened, grown and closed before the next one."""
    names = [name for name, _ in found]
    assert names[:2] == ["message_start", "ping"]
    assert names[-2:] == ["message_delta", "message_stop"]
    assert found[0][1]["message"]["content"] == []
    open, kind, at = False, "", 0
    for name, said in found[2:-2]:
        assert said["index"] == at
        if name == "content_block_start":
            assert not open
            open, kind, signed, grown = True, said["content_block"]["type"], False, 0
        elif name == "content_block_delta":
            assert open
            assert not signed
            assert said["delta"]["type"] in GROWS[kind]
            signed = said["delta"]["type"] == "signature_delta"
            grown += 1
        else:
            assert name == "content_block_stop"
            assert open
            assert grown
            assert signed is (kind == "thinking")
            open, at = False, at + 1
    assert not open


# ---- the two shapes

WHOLE = ([thought("h"), thought("m"), text("Grüß "), text("Gott")], end("tool_calls", USAGE, c1='{"port": "Oban"}'))


def test_a_document() -> None:
    assert document(*WHOLE) == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "iop"},
            {"type": "text", "text": "Grüß Gott", "citations": None},
            {"type": "tool_use", "id": "c1", "name": "tide", "input": {"port": "Oban"}, "caller": {"type": "direct"}},
        ],
        "stop_reason": "tool_use",
        **UNSAID,
        "usage": COUNTED,
    }


def test_a_stream() -> None:
    found = events(streamed(*WHOLE))
    check(found)
    message = document(*WHOLE) | {"content": [], "stop_reason": None, "usage": NOTHING}
    tool = {"type": "tool_use", "id": "c1", "name": "tide", "input": {}, "caller": {"type": "direct"}}
    assert [said for _, said in found] == [
        {"type": "message_start", "message": message},
        {"type": "ping"},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "h"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "m"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "iop"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "", "citations": None}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Grüß "}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Gott"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": tool},
        {
            "type": "content_block_delta",
            "index": 2,
            "delta": {"type": "input_json_delta", "partial_json": '{"port":"Oban"}'},
        },
        {"type": "content_block_stop", "index": 2},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", **UNSAID},
            "usage": COUNTED,
        },
        {"type": "message_stop"},
    ]


def test_nothing_is_said_before_there_is_something_to_say() -> None:
    """Until then the run may go to another provider."""
    stream = MessagesStream("msg_1", "m", lambda: TOOLS)
    stream.started(m.Start())
    assert [stream.delta(delta) for delta in (m.Delta(), text("\n"), thought(" "), text("\n"))] == [b""] * 4
    assert stream.delta(text("Hi")).startswith(b"event: message_start\n")


@pytest.mark.parametrize("deltas", [[], [m.Delta()], [text("\n\n")], [thought("\n"), text(" ")]])
def test_an_answer_without_a_word_is_whole_too(deltas: list[m.Delta]) -> None:
    made = document(deltas, end())
    assert (made["content"], made["stop_reason"], made["usage"]) == ([], "end_turn", NOTHING)
    found = events(streamed(deltas, end()))
    check(found)
    assert [name for name, _ in found] == ["message_start", "ping", "message_delta", "message_stop"]


@pytest.mark.parametrize(
    ("deltas", "content"),
    [
        ([thought("hm\n"), text("\n\n")], ["hm\n"]),
        ([text("\n"), text("\n Hi")], ["\n\n Hi"]),
        ([thought("\n\n"), text("Hi"), text(" "), text("all ")], ["Hi all "]),
        ([text("Hi"), thought(" "), text("all")], ["Hiall"]),
        ([text(" " * 33)], [" " * 33]),
        ([m.Delta(text="a", reasoning="b"), m.Delta(text="c", reasoning="d")], ["b", "a", "d", "c"]),
    ],
)
def test_white_space_makes_no_block(deltas: list[m.Delta], content: list[str]) -> None:
    assert [block.get("text", block.get("thinking")) for block in document(deltas, end())["content"]] == content
    check(events(streamed(deltas, end())))


@pytest.mark.parametrize(
    ("reason", "called", "shown"),
    [
        ("stop", False, "end_turn"),
        ("", False, "end_turn"),
        ("length", False, "max_tokens"),
        ("content_filter", False, "refusal"),
        ("tool_calls", False, "end_turn"),  # a client would wait for a call that is none
        ("odd", False, "end_turn"),
        ("stop", True, "tool_use"),
        ("tool_calls", True, "tool_use"),
        ("length", True, "max_tokens"),
    ],
)
def test_why_it_ends(reason: str, called: bool, shown: str) -> None:
    complete = end(reason, **({"c1": "{}"} if called else {}))
    assert document([], complete)["stop_reason"] == shown
    assert events(streamed([], complete))[-2][1]["delta"] == {"stop_reason": shown, **UNSAID}


@pytest.mark.parametrize(
    ("arguments", "input"),
    [
        ('{"port": "Oban ü", "n": 12345678901234567890}', {"port": "Oban ü", "n": 12345678901234567890}),
        ("", {}),
        (" ", {}),
        ("null", {}),
        ("[1]", {"not_a_json_object": "[1]"}),
        ('{"port": "Ob', {"not_a_json_object": '{"port": "Ob'}),
        ('{"n": NaN}', {"not_a_json_object": '{"n": NaN}'}),
        ('{"n": 1e999}', {"not_a_json_object": '{"n": 1e999}'}),
        ("[" * 9999, {"not_a_json_object": "[" * 9999}),
    ],
)
def test_the_input_of_a_tool(arguments: str, input: dict[str, Any]) -> None:
    complete = end(c1=arguments)
    assert document([], complete)["content"][0]["input"] == input
    (delta,) = [said["delta"] for name, said in events(streamed([], complete)) if name == "content_block_delta"]
    assert json.loads(delta["partial_json"]) == input


def test_a_call_without_an_id_gets_one() -> None:
    calls = json.dumps([{"id": "", "function": {"name": "tide", "arguments": "{}"}}])
    (block,) = document([], m.Complete("tool_calls", None, {m.TOOL_CALLS: calls}))["content"]
    assert block["id"].startswith("toolu_")


def test_tool_calls_are_taken_out_of_the_text_of_a_run_that_says_so() -> None:
    pieces = [text(f"Look.\n{SAID[:9]}"), text(SAID[9:])]
    words, call = document(pieces, end(), m.Start(None, FALLBACK))["content"]
    assert (words["text"].rstrip(), call["name"], call["input"]) == ("Look.", "tide", {"port": "Oban"})
    assert [block["type"] for block in document(pieces, end())["content"]] == ["text"]


@pytest.mark.parametrize("shape", [MessagesStream, MessagesDocument])
def test_tool_calls_that_are_none_are_an_error(shape: Any) -> None:
    made = shape("msg_1", "m", lambda: TOOLS)
    made.started(m.Start())
    made.delta(text("Hi"))
    with pytest.raises(Failure) as raised:
        made.completed(m.Complete("stop", None, {m.TOOL_CALLS: "[7]"}))
    assert raised.value.code == "upstream_error"


@pytest.mark.parametrize(
    ("usage", "input", "cached"),
    [(m.Usage(), 0, 0), (m.Usage(9, 4), 9, 0), (m.Usage(9, 4, 0), 9, 0), (m.Usage(3, 4, 9), 0, 9)],
)
def test_what_came_out_of_a_cache_is_no_input(usage: m.Usage, input: int, cached: int) -> None:
    made = document([], end("stop", usage))["usage"]
    assert (made["input_tokens"], made["cache_read_input_tokens"]) == (input, cached)


def test_an_answer_larger_than_may_be_collected() -> None:
    made = MessagesDocument("msg_1", "m", lambda: TOOLS)
    made.started(m.Start())
    made.delta(text("x" * LARGEST))
    with pytest.raises(Failure) as raised:
        made.delta(thought("x"))
    assert raised.value.code == "answer_too_large"


def test_a_stream_that_broke_has_no_stop() -> None:
    stream = MessagesStream("msg_1", "m", lambda: TOOLS)
    stream.started(m.Start())
    said = stream.delta(text("Hi")) + error_event(Failure("node_lost", "it went away"), "req-7")
    found = events(said)
    assert found[-1][1]["error"] == {"type": "api_error", "message": "it went away"}
    assert not {"content_block_stop", "message_delta", "message_stop"} & {name for name, _ in found}


# ---- whatever comes

WORDS = st.one_of(st.text(max_size=8), st.sampled_from(["\n", " ", "\r\n\r\n", "data: ", SAID, SAID[:20], "<think>"]))
DELTAS = st.lists(st.builds(m.Delta, text=WORDS, reasoning=st.one_of(st.just(""), WORDS)), max_size=12)
ARGUMENTS = st.sampled_from(["{}", "", "7", '{"a": [1, "\\u00fc"]}'])
ENDS = st.builds(
    lambda reason, calls: end(reason, USAGE, **{f"c{n}": each for n, each in enumerate(calls)}),
    st.sampled_from(["stop", "length", "tool_calls", "content_filter"]),
    st.lists(ARGUMENTS, max_size=3),
)
STARTS = st.sampled_from([m.Start(), m.Start(None, FALLBACK)])


def unnamed(message: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is made up anew each time."""
    for block in message["content"]:
        if block["type"] == "tool_use":
            del block["id"]
    return message


@given(DELTAS, ENDS, STARTS)
def test_the_order_is_always_legal_and_both_shapes_say_the_same(
    deltas: list[m.Delta], complete: m.Complete, start: m.Start
) -> None:
    data = streamed(deltas, complete, start)
    found = events(data)
    check(found)
    made = document(deltas, complete, start)
    Message.model_validate(made, strict=True)
    content: list[dict[str, Any]] = []
    for name, said in found:
        if name == "content_block_start":
            content.append(dict(said["content_block"]))
        elif name == "content_block_delta":
            delta = dict(said["delta"])
            kind = delta.pop("type")
            if kind == "input_json_delta":
                content[-1]["input"] = json.loads(delta["partial_json"])
            for member in delta.keys() & content[-1].keys():
                content[-1][member] += delta[member]
    assert unnamed({"content": content}) == unnamed({"content": made["content"]})
    assert not any(block["type"] == "text" and not block["text"] for block in content)
    if start == m.Start():
        for kind, words in (("text", [d.text for d in deltas]), ("thinking", [d.reasoning for d in deltas])):
            shown = [block[kind] for block in content if block["type"] == kind]
            assert "".join("".join(shown).split()) == "".join("".join(words).split())


# ---- Anthropic's SDK


def client(status: int, kind: str, body: bytes) -> anthropic.Anthropic:
    """Return the SDK with a server that always gives the same answer."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, headers={"content-type": kind}, content=body, request=request)

    transport = httpx2.MockTransport(answer)
    return anthropic.Anthropic(api_key="k", max_retries=0, http_client=httpx2.Client(transport=transport))


ASK: Any = {"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]}


def sent(message: Message) -> dict[str, Any]:
    return message.model_dump(mode="json", exclude_unset=True)


def test_the_sdk_reads_a_document() -> None:
    made = document(*WHOLE)
    Message.model_validate(made, strict=True)
    message = client(200, "application/json", json.dumps(made).encode()).messages.create(**ASK)
    assert sent(message) == made


@pytest.mark.parametrize(
    "run",
    [WHOLE, ([], end()), ([thought("hm")], end("length", USAGE)), ([], end("stop", None, c1="{}", c2='{"a": [{}]}'))],
)
def test_the_sdk_puts_a_stream_together_as_the_document(run: tuple[list[m.Delta], m.Complete]) -> None:
    with client(200, "text/event-stream", streamed(*run)).messages.stream(**ASK) as stream:
        message = sent(stream.get_final_message())
    made = document(*run)
    assert {name: message[name] for name in made} == made


def test_the_sdk_raises_what_broke() -> None:
    stream = MessagesStream("msg_1", "m", lambda: TOOLS)
    stream.started(m.Start())
    body = stream.delta(text("Hi")) + error_event(Failure("node_lost", "it went away"), "req-7")
    with (
        pytest.raises(anthropic.APIStatusError, match="it went away"),
        client(200, "text/event-stream", body).messages.stream(**ASK) as broken,
    ):
        broken.until_done()


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        ("invalid_value", anthropic.BadRequestError),
        ("invalid_api_key", anthropic.AuthenticationError),
        ("model_not_found", anthropic.NotFoundError),
        ("queue_full", anthropic.RateLimitError),
        ("upstream_error", anthropic.InternalServerError),
    ],
)
def test_the_sdk_knows_an_error(code: str, raised: type[anthropic.APIStatusError]) -> None:
    failure = Failure(code, "why")
    body = json.dumps(error_document(failure, "req_1")).encode()
    with pytest.raises(raised, match="why"):
        client(failure.http_status, "application/json", body).messages.create(**ASK)
