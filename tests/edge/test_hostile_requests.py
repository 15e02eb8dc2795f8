"""Requests by somebody who means harm, or whose client is broken: every member of every API, wrong in every way.

Whatever comes, a codec says what is wrong with it (a :class:`Failure` of 4xx) or makes JSON of it that any backend and
any client can read: no other exception, no ``Infinity``, and no more time than the request is long.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iop import model as m
from iop.document import compact
from iop.edge.pool.estimate import estimate
from iop.edge.surfaces.openai import codec
from iop.edge.surfaces.openai.apis.chat import ChatRequest
from iop.edge.surfaces.openai.apis.completions import CompletionRequest
from iop.edge.surfaces.openai.apis.embeddings import EmbeddingsRequest
from iop.edge.surfaces.openai.apis.messages import CountTokensRequest, MessagesRequest
from iop.edge.surfaces.openai.apis.passing import PassingRequest
from iop.edge.surfaces.openai.apis.responses import ResponsesRequest
from iop.edge.surfaces.openai.policy import Policy
from iop.edge.surfaces.openai.translation import AsChat
from iop.errors import KINDS, Failure

SCHEMA: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION: Final = {"name": "weather", "description": "of a city", "parameters": SCHEMA, "strict": True}
CALL: Final = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Ulm"}'}}
URL: Final = "data:image/png;base64,AAAA"
OF_ALL: Final = {
    "model": "m",
    "stream": True,
    "temperature": 0.5,
    "top_p": 1,
    "seed": 7,
    "metadata": {"session_id": "s", "workspace": "/w", "k": "v"},
    "user": "u",
}

CHAT: Final = {
    **OF_ALL,
    "messages": [
        {"role": "system", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": URL}}],
        },
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "warm"},
        {"role": "user", "content": "and now?"},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": {"type": "function", "function": {"name": "weather"}},
    "max_tokens": 9,
    "max_completion_tokens": 9,
    "stop": ["\n"],
    "stream_options": {"include_usage": True},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    "reasoning_effort": "low",
    "chat_template_kwargs": {"enable_thinking": True},
    "logit_bias": {"5": 1},
    "thinking": {"type": "enabled", "budget_tokens": 9},
}

COMPLETION: Final = {
    **OF_ALL,
    "prompt": ["once"],
    "n": 1,
    "best_of": 1,
    "logprobs": None,
    "echo": False,
    "suffix": "",
    "max_tokens": 9,
    "stop": ["\n"],
    "logit_bias": {"5": 1},
    "stream_options": {"include_usage": False},
    "presence_penalty": 0,
    "reasoning_effort": "low",
}

EMBEDDING: Final = {"model": "m", "input": ["a", [1, 2]], "encoding_format": "base64", "dimensions": 8, "user": "u"}

RESPONSES: Final = {
    **OF_ALL,
    "instructions": "be brief",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "hi"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": URL, "detail": "low", "file_id": None}]},
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}]},
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "content": [{"type": "reasoning_text", "text": ""}],
            "encrypted_content": "iop1:aG0=",
        },
        {"type": "function_call", "call_id": "c", "name": "weather", "namespace": "ns", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "warm"}]},
        {"type": "custom_tool_call", "call_id": "d", "name": "patch", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "done"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "so"}, {"type": "refusal", "refusal": "no"}]},
    ],
    "tools": [
        {"type": "function", **FUNCTION},
        {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
        {"type": "namespace", "name": "ns", "tools": [{"type": "function", **FUNCTION}]},
        {"type": "web_search"},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]},
    "parallel_tool_calls": True,
    "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
    "store": True,
    "background": False,
    "previous_response_id": None,
    "max_output_tokens": 9,
    "top_k": 3,
    "thinking_token_budget": 4,
}

MESSAGES: Final = {
    "model": "m",
    "max_tokens": 9,
    "stream": True,
    "system": [{"type": "text", "text": "x-anthropic-billing-header: x\nbe brief"}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "document", "title": "t", "source": {"type": "text", "data": "d", "media_type": "text/plain"}},
                {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "d"}]}},
                {"type": "search_result", "title": "t", "source": "s", "content": [{"type": "text", "text": "f"}]},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "so"},
                {"type": "tool_use", "id": "c", "name": "weather", "input": {"city": "Ulm"}},
                {"type": "compaction", "content": "short"},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c",
                    "is_error": True,
                    "content": [
                        {"type": "text", "text": "warm"},
                        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
                        {"type": "tool_reference", "tool_name": "weather"},
                    ],
                }
            ],
        },
        {"role": "system", "content": "now"},
        {"role": "user", "content": "and?"},
    ],
    "tools": [{"name": "weather", "description": "d", "input_schema": SCHEMA, "strict": True}, {"type": "bash_1"}],
    "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 9},
    "temperature": 0.5,
    "top_p": 1,
    "top_k": 3,
    "stop_sequences": ["\n"],
    "metadata": {"user_id": "u"},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    "output_format": {"type": "json_schema", "schema": SCHEMA},
    "mcp_servers": [],
}

GARBAGE: Final = {
    **{text: text for text in ("null", "true", "false", "0", "-1", "1.5", "[]", "{}", '""', '"m"', "[null]", "[[]]")},
    **{
        text: text for text in ("1e999", "-1e999", "1e-999", "[1e999]", '{"a": -1e999}', "NaN", "Infinity", "-0", "1.0")
    },
    **{
        text: text
        for text in ('{"type": []}', '{"type": {}}', '{"type": 1e999}', '{"a": 1, "a": [], "a": {}}', '{"": 0}')
    },
    **{
        text: text
        for text in ('"\\ud800"', '["\\udfff"]', '{"\\ud800": "\\udc00"}', '"\\u0000"', '"\\r\\n\\r\\n"', '"\u2028"')
    },
    **{
        text: text
        for text in ('[{"type": "text"}]', '[{"type": "text", "text": 1}]', '{"role": []}', "[1, [2, 3.5], {}]")
    },
    "2^63": str(2**63),
    "-2^64": str(-(2**64)),
    "400 digits": "9" * 400,
    "4000 digits": "9" * 4000,
    "5000 digits": "9" * 5000,
    "long": json.dumps("a" * 5000),
    "deep list": "[" * 400 + "]" * 400,
    "deep object": '{"a":' * 400 + "0" + "}" * 400,
    "deeper": "[" * 100_000 + "]" * 100_000,
    "deep content": '[{"type":"tool_result","tool_use_id":"c","content":' * 300 + '""' + "}]" * 300,
    "deep results": '[{"type":"search_result","content":' * 400 + '"x"' + "}]" * 400,
    "deep choice": '{"type":"allowed_tools","tools":[],"mode":' * 400 + '"auto"' + "}" * 400,
    "cut": '{"a": ',
    "two": "1, 2",
}

THOROUGH: Final = "FUZZ_EXAMPLES" in os.environ
"""Whether everything is tried (``tox -e fuzz``), and not a part of it, always the same one."""

SAMPLED: Final = 1 if THOROUGH else 7
EXAMPLES: Final = 400 if THOROUGH else 60

POLICY: Final = Policy(5, 7, 11)
USAGE: Final = m.Usage(1, 2, 3, 4)
NATIVE_CALLS: Final = json.dumps(
    [CALL, {**CALL, "id": "c2", "function": {"name": "patch", "arguments": '{"input": 5}'}}]
)


def strictly(data: bytes | str) -> Any:
    """Read JSON as the strictest of readers does: Python's own would take ``Infinity``."""

    def constant(word: str) -> Any:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(data, parse_constant=constant)


def read_events(data: bytes) -> None:
    for block in data.split(b"\n\n"):
        for line in block.split(b"\n"):
            if line.startswith(b"data: ") and line != b"data: [DONE]":
                strictly(line[6:])


def answer_to(request: Any) -> None:
    """Let a run be told in the API's shape, whole, and failed in the middle."""
    for marked in ({}, {m.TEXT_TOOL_FALLBACK: "true"}):
        built = request.building("1", 2)
        built.started(m.Start(metadata=marked))
        said = built.delta(
            m.Delta(text='x <tool_call>{"name": "weather", "arguments": {}}</tool_call>', reasoning="hm")
        )
        said += built.completed(m.Complete(finish_reason="stop", usage=USAGE, metadata={m.TOOL_CALLS: NATIVE_CALLS}))
        read_events(said) if request.stream else strictly(said)
    broken = request.building("1", 2)
    broken.started(m.Start())
    broken.delta(m.Delta(text="a"))
    failure = Failure("node_lost", "gone")
    if request.stream:
        read_events(broken.failed(failure) if hasattr(broken, "failed") else request.broken(failure, "req-1"))


def exercise(read: Callable[[bytes], Any], body: bytes) -> None:
    """Do with a request all that the edge does."""
    request = read(body)
    read_events(request.broken(Failure("node_lost", "gone"), "r"))
    errand = codec.Errand.parse(request.document, {})
    codec.session_of("p", errand.session_id).encode()
    assert estimate(request.document) >= 0
    POLICY.thinking(request.document)
    for target in (request.model, 'the "other" \ud800'[:12]):
        if isinstance(request, PassingRequest) and request.span is not None:
            request.native(target, {})
        else:
            made = strictly(request.native(target, POLICY.limits(request.document, "max_tokens")))
            assert made["model"] == target
    own = getattr(request, "thinking", m.Thinking())
    assert own.budget is None or 0 < own.budget < 1 << 63, "the wire has 63 bits for it"
    if hasattr(request, "chat"):
        chat = AsChat(request, lambda model: POLICY, own)
        assert chat.tokens >= 0
        assert chat.wish() is not None
        strictly(chat("t"))
    if hasattr(request, "building"):
        answer_to(request)


def survives(read: Callable[[bytes], Any], body: bytes) -> None:
    try:
        exercise(read, body)
    except Failure as failure:
        refusal = failure
    else:
        return
    assert KINDS[refusal.code].http_status == refusal.http_status
    assert 400 <= refusal.http_status < 500
    assert len(refusal.message) < 500
    assert refusal.param is None or len(refusal.param) < 4096
    strictly(compact({"message": refusal.message, "param": refusal.param}))


APIS: Final[dict[str, tuple[Callable[[bytes], Any], dict[str, Any]]]] = {
    "chat": (ChatRequest.parse, CHAT),
    "completion": (CompletionRequest.parse, COMPLETION),
    "embedding": (EmbeddingsRequest.parse, EMBEDDING),
    "responses": (ResponsesRequest.parse, RESPONSES),
    "messages": (MessagesRequest.parse, MESSAGES),
    "count_tokens": (CountTokensRequest.parse, MESSAGES),
    "passing": (lambda body: PassingRequest.parse(body, b"application/json"), EMBEDDING),
}

Path = tuple[str | int, ...]


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place of a document, the whole first."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield from places(each, (*path, name))


_HERE: Final = "\ue000here\ue000"


def with_text(document: Any, path: Path, raw: str) -> str:
    """Return the document's text with a JSON text in one place."""

    def put(value: Any, path: Path) -> Any:
        if not path:
            return _HERE
        made = dict(value) if isinstance(value, dict) else list(value)
        made[path[0]] = put(made[path[0]], path[1:])
        return made

    return json.dumps(put(document, path), ensure_ascii=False).replace(f'"{_HERE}"', raw)


@pytest.mark.parametrize("api", APIS)
def test_a_good_request_is_good(api: str) -> None:
    read, document = APIS[api]
    for stream in (True, False):
        exercise(read, json.dumps({**document, "stream": stream}).encode())


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("wrong", GARBAGE)
def test_every_member_wrong_in_every_way(api: str, wrong: str) -> None:
    read, document = APIS[api]
    faults = []
    for number, path in enumerate(places(document)):
        if (number + list(GARBAGE).index(wrong)) % SAMPLED:
            continue
        try:
            survives(read, with_text(document, path, GARBAGE[wrong]).encode())
        except Exception as error:
            faults.append(f"{path}: {error!r}")
    assert not faults, "\n".join(faults)


WRONG: Final = st.sampled_from(sorted(GARBAGE.values()))


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
@given(st.sampled_from(sorted(APIS)), st.data())
def test_several_members_wrong_at_once(api: str, data: st.DataObject) -> None:
    read, document = APIS[api]
    members = data.draw(st.dictionaries(st.sampled_from(sorted(document)), WRONG, min_size=2, max_size=5))
    texts = {name: members.get(name) or json.dumps(value) for name, value in document.items()}
    survives(read, ("{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in texts.items()) + "}").encode())


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
@given(st.sampled_from(sorted(APIS)), st.data())
def test_bytes_that_were_hurt_on_the_way(api: str, data: st.DataObject) -> None:
    read, document = APIS[api]
    body = bytearray(json.dumps(document).encode())
    for at in data.draw(st.lists(st.integers(0, len(body) - 1), max_size=4)):
        body[at] = data.draw(st.integers(0, 255))
    survives(read, bytes(body[: data.draw(st.integers(0, len(body)))] if data.draw(st.booleans()) else body))


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", ["model", "x", "metadata"])
def test_a_member_twice(api: str, name: str) -> None:
    """The second must not slip past."""
    read, document = APIS[api]
    text = json.dumps({**document, name: document.get(name, 1)})
    with pytest.raises(Failure, match="given twice") as raised:
        read(f'{text[:-1]}, "{name}": "other"}}'.encode())
    assert (raised.value.code, raised.value.param) == ("invalid_value", name)


# ---- forms ----------------------------------------------------------------------------------------------------------

FORM: Final = (
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="model"\r\nContent-Type: a/b\r\n\r\n\0\xff\r\n'
    b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b--\r\n'
)
BOUNDARIES: Final = st.sampled_from(
    [b"b", b'"b"', b"", b'"', b"b; boundary=c", b"-", b"b--", b"\xff", b"(.*)*", b"b" * 71, b'"b\\"']
)


def form(kind: bytes) -> Callable[[bytes], Any]:
    return lambda body: PassingRequest.parse(body, b"multipart/form-data" + kind)


@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
@given(BOUNDARIES, st.data())
def test_forms_that_were_hurt_on_the_way(boundary: bytes, data: st.DataObject) -> None:
    pieces = [b"\r\n", b"--b", b"--b--", b"\r\n\r\n", b'name="model"', b";", b"\0", b"\xff", FORM, FORM[:70], FORM[90:]]
    hurt = data.draw(st.lists(st.sampled_from(pieces) | st.binary(max_size=4), max_size=8))
    body = b"".join(hurt)
    at = data.draw(st.integers(0, len(FORM)))
    for each in (body, FORM[:at] + body + FORM[at:], FORM[:at]):
        survives(form(b"; boundary=" + boundary), each)


def test_a_good_form_is_good() -> None:
    request = form(b"; boundary=b")(FORM)
    assert (request.model, request.native("other", {})) == ("m", FORM.replace(b"\r\nm\r\n", b"\r\nother\r\n"))


# ---- time -----------------------------------------------------------------------------------------------------------

LARGE: Final[dict[str, Callable[[int], bytes]]] = {
    "braces": lambda n: b"[" * n,
    "objects": lambda n: b'{"a":' * n,
    "members": lambda n: b"{" + b",".join(b'"%d":1' % i for i in range(n // 8)) + b"}",
    "same members": lambda n: b"{" + b'"a":1,' * (n // 6) + b'"a":1}',
    "escapes": lambda n: b'{"model":"' + b"\\ud800" * (n // 6) + b'"}',
    "digits": lambda n: b'{"model":' + b"9" * n + b"}",
    "spaces": lambda n: b'{"model"' + b" " * n + b"}",
    "turns": lambda n: (
        b'{"model":"m","max_tokens":1,"prompt":"a","input":[%b],"messages":[%b]}'
        % ((b",".join([b'{"role":"assistant","content":"a"}'] * (n // 80)),) * 2)
    ),
    "results": lambda n: (
        b'{"model":"m","max_tokens":1,"messages":[%b]}'
        % b",".join([b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"b"}]}'] * (n // 90))
    ),
    "systems": lambda n: (
        b'{"model":"m","max_tokens":1,"messages":[%b]}' % b",".join([b'{"role":"system","content":"a"}'] * (n // 32))
    ),
    "reminders": lambda n: (
        b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"},%b]}'
        % b",".join([b'{"role":"system","content":"a"}'] * (n // 32))
    ),
    "users": lambda n: (
        b'{"model":"m","max_tokens":1,"messages":[%b]}' % b",".join([b'{"role":"user","content":"a"}'] * (n // 30))
    ),
    "blocks": lambda n: (
        b'{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[%b]}]}'
        % b",".join([b'{"type":"text","text":"a"}'] * (n // 27))
    ),
    "reasonings": lambda n: (
        b'{"model":"m","input":[{"role":"assistant","content":"a"},%b]}'
        % b",".join([b'{"type":"reasoning","content":[{"type":"reasoning_text","text":"a"}]}'] * (n // 70))
    ),
    "calls": lambda n: (
        b'{"model":"m","input":[%b]}'
        % b",".join(
            [
                b'{"type":"reasoning","content":[{"type":"reasoning_text","text":"a"}]}',
                b'{"type":"function_call","call_id":"c","name":"n","arguments":"{}"}',
            ]
            * (n // 140)
        )
    ),
    "long calls": lambda n: (
        b'{"model":"m","input":[%b]}'
        % b",".join(
            [
                b'{"type":"reasoning","content":[{"type":"reasoning_text","text":"%b"}]}' % (b"a" * 800),
                b'{"type":"function_call","call_id":"c","name":"n","arguments":"{}"}',
            ]
            * (n // 940)
        )
    ),
    "instructions": lambda n: (
        b'{"model":"m","input":[%b]}' % b",".join([b'{"role":"system","content":"a"}'] * (n // 32))
    ),
}

BIG: Final = 1 << 15
"""Bytes of the smaller of two requests."""


def assert_linear(read: Callable[[bytes], Any], made: Callable[[int], bytes]) -> None:
    """Four times the request takes no more than eight times the time; little time is noise."""

    def seconds(size: int) -> float:
        body, took = made(size), []
        gc.disable()  # in the middle of a long test run a collection takes longer than the request
        try:
            for _ in range(2):
                begun = time.process_time()
                survives(read, body)
                took.append(time.process_time() - begun)
        finally:
            gc.enable()
        return min(took)

    for _ in range(3):  # a machine may stumble, once
        small, large = seconds(BIG), seconds(4 * BIG)
        if large < max(8 * small, 0.3):
            return
    raise AssertionError(f"{small:.3f} s, then {large:.3f} s")


@pytest.mark.slow
@pytest.mark.parametrize("shape", LARGE)
@pytest.mark.parametrize("api", ["chat", "completion", "embedding", "responses", "messages"])
def test_time_is_linear(api: str, shape: str) -> None:
    assert_linear(APIS[api][0], LARGE[shape])


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        b"\r\n--b",
        b"\r\n--b\r\n",
        b"\r\n--b\r\nContent-Disposition: form-data; x\r\n\r\n",
        b"--b",
        b"--b ",
        b"\r\n--b ",
        b" \t",
        b"\r\nContent-Disposition: form-data;",
        b"\r\n\r\n--",
        b";name=",
    ],
    ids=repr,
)
def test_time_for_a_form_is_linear(part: bytes) -> None:
    assert_linear(form(b"; boundary=b"), lambda size: b"--b\r\n" + part * (size // len(part)) + FORM)


@pytest.mark.slow
@pytest.mark.parametrize("begin", [b"a", b"--b", b"--b\r\n\r\n", b""], ids=repr)
def test_time_for_a_form_of_one_line_is_linear(begin: bytes) -> None:
    assert_linear(form(b"; boundary=b"), lambda size: begin + b"--b" * (size // 3))


@pytest.mark.slow
@pytest.mark.parametrize("before", [b"", b"; charset=utf-8", b"; boundary=b", b"; boundary=b; charset=utf-8"], ids=repr)
@pytest.mark.parametrize("blank", [b" ", b" \t", b"; ", b"-"], ids=repr)
def test_time_for_a_forms_kind_is_linear(before: bytes, blank: bytes) -> None:
    kinds: dict[bytes, bytes] = {}

    def made(size: int) -> bytes:
        body = b"%d" % size
        kinds[body] = b"multipart/form-data" + before + blank * (size // len(blank)) + b"!"
        return body

    assert_linear(lambda body: PassingRequest.parse(body, kinds[body]), made)


@pytest.mark.slow
@pytest.mark.parametrize("before", [b"", b"form-data", b"form-data; name=model"], ids=repr)
@pytest.mark.parametrize("piece", [b" ", b" \t", b"; ", b";name=", b";name=a ", b';name="', b"\\"], ids=repr)
@pytest.mark.parametrize("end", [b"!", b"\n"], ids=repr)
def test_a_parts_head_takes_no_time(before: bytes, piece: bytes, end: bytes) -> None:
    """It is bounded; a large form has as many of them as fit."""
    head = b"Content-Disposition: " + before + piece * (8000 // len(piece)) + end
    body = b"--b\r\n" + head + b"\r\n\r\n\r\n--b\r\n"
    read = form(b"; boundary=b")
    begun = time.process_time()
    survives(read, body)
    assert time.process_time() - begun < 0.1
