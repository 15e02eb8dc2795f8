"""Requests of APIs that the edge does not know: found by their model's name, and passed on byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doubles import complete, fail, piece, start, wait, whole
from gateway_in_memory import TRACE, Answer, Client, Gateway, document, node
from hypothesis import given
from hypothesis import strategies as st

from iop import model as m
from iop.edge.surfaces.openai.apis.passing import PassingRequest
from iop.errors import Failure

pytestmark = pytest.mark.usefixtures("logged")

ANSWER = b'{"results":[{"index":0,"relevance_score":0.5}],"usage":{"total_tokens":4}}'
MARK = "----WebKitFormBoundary7MA4YWxk"
FORM = f"multipart/form-data; boundary={MARK}"
SOUND = bytes(range(256)) * 4 + b"\r\n--" + MARK[:-1].encode() + b"\r\n\r\n--"


SOUNDS = m.HttpResponseHead(200, (("content-type", "audio/mpeg"),))


def part(name: str, value: bytes, *more: str, disposition: str = "") -> bytes:
    lines = [disposition or f'Content-Disposition: form-data; name="{name}"', *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + value


def form(*parts: bytes, mark: str = MARK, end: bytes = b"--\r\n") -> bytes:
    """Return a form's body."""
    begin = b"--" + mark.encode()
    return b"".join(begin + b"\r\n" + each + b"\r\n" for each in parts) + begin + end


FILE = part(
    "file",
    SOUND,
    "Content-Type: audio/wav",
    disposition='Content-Disposition: form-data; name="file"; filename="a b.wav"',
)
SPOKEN = form(FILE, part("model", b"m"), part("language", b"de"))


def renamed() -> dict[str, Any]:
    """Return a configuration in which model `m` is the backend's `whisper/1`."""
    made = document(node("n1", "p1", models=["whisper/1"]))
    made["models"] = [{"id": "m", "providers": [{"id": "p1", "target": "whisper/1"}]}]
    return made


def speak(gateway: Gateway, body: bytes, kind: str = FORM, path: str = "/v1/audio/transcriptions") -> Client:
    return gateway.ask(path, body, headers={"Content-Type": kind})


def refused(answer: Answer) -> tuple[int, Any, Any]:
    return answer.status, answer.code, answer.json["error"]["param"]


# ---- JSON


@pytest.mark.parametrize("path", ["/v1/rerank", "/v1/score", "/v1/moderations", "/v1/images/generations", "/v1/x-y/z"])
def test_whatever_names_a_model_passes(path: str) -> None:
    gateway = Gateway(whole(ANSWER, usage=m.Usage(4)), configuration=renamed())
    body = b'{ "model" : "m", "query":"q" , "top_n":1.0e0, "x":[null,0,""],"stream_options":null}'
    answer = gateway.ask(path, body, headers={"Traceparent": TRACE, "Cookie": "s=1"}).answer
    assert (answer.status, answer.body) == (200, ANSWER)
    request = gateway.run.request
    assert request.input == body.replace(b'"m"', b'"whisper/1"')
    assert request.http is not None
    assert (request.http.method, request.http.path) == ("POST", path)
    assert dict(request.http.headers) == {"x-request-id": answer.headers["x-request-id"], "traceparent": TRACE}
    (record,) = gateway.records
    assert (record.operation, record.status, record.outcome, record.model) == ("passthrough", 200, "complete", "m")
    assert (record.usage, record.estimated) == (m.Usage(4), False)
    gateway.assert_idle()
    gateway.close()


def test_the_policy_of_chats_has_no_part_in_it() -> None:
    configuration = document()
    configuration["models"][0] |= {"default_max_tokens": 5, "min_max_tokens": 5, "default_thinking_token_budget": 9}
    gateway = Gateway(whole(ANSWER), configuration=configuration)
    body = b'{"model":"m","max_tokens":1,"query":"q"}'
    gateway.ask("/v1/rerank", body)
    assert gateway.run.request.input == body


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"{", "invalid_json", None),
        (b"", "invalid_json", None),
        (b"[]", "invalid_value", None),
        (b"{}", "invalid_value", "model"),
        (b'{"model":""}', "invalid_value", "model"),
        (b'{"model":5}', "invalid_value", "model"),
        (b'{"model":"m","model":"other"}', "invalid_value", "model"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/rerank", "/v1/audio/speech", "/v1/images/generations", "/v1/moderations"])
def test_what_is_wrong_is_told_where_some_backends_have_it(path: str, body: bytes, code: str, param: Any) -> None:
    gateway = Gateway(whole(ANSWER))
    headers = {} if body else {"Content-Length": "0"}
    answer = gateway.ask(path, body, method="POST", headers=headers).answer
    assert refused(answer) == (400, code, param)
    assert gateway.adapter.runs == []


@pytest.mark.parametrize("body", [b"{", b"", b"[]", b"{}", b'{"model":5}'])
def test_a_path_that_nobody_knows_is_none_without_a_model(body: bytes) -> None:
    gateway = Gateway(whole(ANSWER))
    headers = {} if body else {"Content-Length": "0"}
    answer = gateway.ask("/v1/unheard-of", body, method="POST", headers=headers).answer
    assert refused(answer) == (404, "unknown_url", None)
    (record,) = gateway.records
    assert (record.status, record.run_id) == (404, "")


def test_an_unknown_model() -> None:
    assert refused(Gateway().ask("/v1/rerank", {"model": "other"}).answer) == (404, "model_not_found", "model")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/files",
        "/v1/batches",
        "/v1/assistants",
        "/v1/threads/t/runs",
        "/v1/vector_stores",
        "/v1/fine_tuning/jobs",
        "/v1/uploads",
        "/v1/responses/r1/cancel",
        "/v1/conversations",
        "/v1/messages/batches",
        "/v1/chat/completions/x",
        "/v1/embeddings/x",
        "/v1/realtime/sessions",
        "/v1/videos",
    ],
)
def test_what_a_backend_would_have_to_keep_is_not_served(path: str) -> None:
    gateway = Gateway(whole(ANSWER))
    assert gateway.ask(path, {"model": "m"}).answer.status == 404
    assert gateway.adapter.runs == []


@pytest.mark.parametrize(
    "path",
    [
        "/v1/rerank/",
        "/v1//rerank",
        "/v1/../rerank",
        "/v1/%72erank",
        "/v1/.hidden",
        "/v2/rerank",
        "/v1/" + "a/" * 9 + "a",
    ],
)
def test_a_path_of_another_shape_reaches_no_backend(path: str) -> None:
    gateway = Gateway(whole(ANSWER))
    assert refused(gateway.ask(path, {"model": "m"}).answer) == (404, "unknown_url", None)
    assert gateway.adapter.runs == []


def test_only_a_post_passes() -> None:
    gateway = Gateway(whole(ANSWER))
    assert refused(gateway.ask("/v1/unheard-of", {"model": "m"}, method="PUT").answer) == (404, "unknown_url", None)
    assert refused(gateway.ask("/v1/unheard-of").answer) == (404, "unknown_url", None)
    assert gateway.adapter.runs == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/v1/rerank", "/v1/audio/speech", "/v1/images/generations"])
def test_another_method_is_told_where_some_backends_have_it(path: str, method: str) -> None:
    gateway = Gateway(whole(ANSWER))
    answer = gateway.ask(path, method=method).answer
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    if method != "HEAD":
        assert refused(answer) == (405, "method_not_allowed", None)
    assert gateway.adapter.runs == []
    gateway.assert_idle()


@pytest.mark.parametrize("path", ["/v1/rerank/", "/v1/audio//speech", "/v2/rerank", "/rerank", "/v1/chat"])
def test_another_method_is_nothing_elsewhere(path: str) -> None:
    assert refused(Gateway().ask(path).answer) == (404, "unknown_url", None)


@pytest.mark.parametrize("type", ["ollama", "cli"])
def test_a_provider_without_http_does_not_serve_it(type: str) -> None:
    answer = Gateway(configuration=normalized(type)).ask("/v1/rerank", {"model": "m"}).answer
    assert refused(answer) == (404, "unknown_url", None)


def normalized(type: str) -> dict[str, Any]:
    made = node("n1", "p1", type=type, category="cli" if type == "cli" else "api")
    made["adapters"] = [{"name": "a", "type": type, **({"command": "x"} if type == "cli" else {})}]
    return document(made)


# ---- how answers come


def test_sounds_flow_without_being_held() -> None:
    gateway = Gateway(start(SOUNDS), piece(b"\xff\xfb"), wait)
    client = gateway.ask("/v1/audio/speech", {"model": "m", "input": "hi"})
    assert (client.answer.status, client.answer.body, client.answer.whole) == (200, b"\xff\xfb", False)
    assert client.answer.headers["content-type"] == "audio/mpeg"
    gateway.run.say(piece(b"\0"), complete())
    gateway.run.go()
    gateway.net.run()
    assert (client.answer.body, client.answer.whole) == (b"\xff\xfb\0", True)
    (record,) = gateway.records
    assert record.usage.output_tokens == 0
    gateway.assert_idle()


def test_sounds_that_break_off_do_not_look_whole() -> None:
    gateway = Gateway(start(SOUNDS), piece(b"\xff"), wait)
    client = gateway.ask("/v1/audio/speech", {"model": "m", "input": "hi"})
    gateway.run.say(lambda sink: sink.fail(Failure("upstream_error", "broke")))
    gateway.net.run()
    assert not client.answer.whole
    assert client.lost


def test_a_stream_passes_as_one() -> None:
    gateway = Gateway(start(), piece(b"event: x\ndata: 1\n\n"), wait)
    client = gateway.ask("/v1/audio/speech", {"model": "m", "stream_format": "sse"})
    assert client.answer.body == b"event: x\ndata: 1\n\n"


def test_a_stream_that_breaks_says_so() -> None:
    gateway = Gateway(start(), piece(b"data: 1\n\n"), fail(Failure("upstream_error", "broke")))
    answer = gateway.ask("/v1/audio/speech", {"model": "m", "stream_format": "sse"}).answer
    assert json.loads(answer.events[-1])["error"]["code"] == "upstream_error"
    assert answer.whole


def test_a_stream_that_waits_is_told_nothing_where_it_may_be_a_sound() -> None:
    gateway = Gateway(wait, configuration=document(node("n1", "p1", capacity=1)))
    first = gateway.chat()
    client = gateway.ask("/v1/audio/speech", {"model": "m", "input": "hi", "stream": True})
    gateway.net.run(20)
    assert client.data == b""
    gateway.adapter.script = (start(SOUNDS), piece(b"\xff\xfb"), complete())
    first.leave()
    gateway.net.run()
    assert (client.answer.status, client.answer.body, client.answer.whole) == (200, b"\xff\xfb", True)
    gateway.assert_idle()


def test_a_client_that_leaves_ends_it() -> None:
    gateway = Gateway(wait)
    client = speak(gateway, SPOKEN)
    client.leave()
    gateway.net.run()
    assert gateway.run.cancelled
    gateway.assert_idle()


# ---- forms


@pytest.mark.parametrize(
    "kind",
    [
        FORM,
        f'multipart/form-data; boundary="{MARK}"',
        f"Multipart/Form-Data;boundary={MARK}",
        f"multipart/form-data; charset=utf-8; boundary={MARK}",
        f'multipart/form-data; BOUNDARY="{MARK}"; charset=utf-8',
    ],
)
def test_a_form(kind: str) -> None:
    gateway = Gateway(whole(b'{"text":"hi"}'), configuration=renamed())
    assert speak(gateway, SPOKEN, kind).answer.json == {"text": "hi"}
    request = gateway.run.request
    assert request.input == form(FILE, part("model", b"whisper/1"), part("language", b"de"))
    assert request.http is not None
    assert dict(request.http.headers)["content-type"] == kind
    (record,) = gateway.records
    assert (record.operation, record.model) == ("passthrough", "m")
    gateway.close()


def test_a_form_whose_model_has_the_backends_own_name_is_not_touched() -> None:
    gateway = Gateway(whole(b"{}"))
    speak(gateway, SPOKEN)
    assert gateway.run.request.input == SPOKEN


def test_a_long_form_travels_in_parts() -> None:
    gateway = Gateway(whole(b"{}"), configuration=renamed())
    sound = part("file", SOUND * 2000, disposition='Content-Disposition: form-data; name="file"; filename="f"')
    speak(gateway, form(part("model", b"m"), sound))
    assert gateway.run.request.input == form(part("model", b"whisper/1"), sound)


def model_of(body: bytes, kind: str = FORM) -> str:
    return PassingRequest.parse(body, kind.encode()).model


@pytest.mark.parametrize(
    "body",
    [
        b"a preamble\r\n" + SPOKEN,
        SPOKEN + b"an epilogue\r\n" + part("model", b"other"),
        form(part("model", b"m"), end=b"--"),
        form(part("model", b"m", "Content-Type: text/plain; charset=utf-8")),
        form(part("", b"m", disposition="content-DISPOSITION:form-data;name=model")),
        form(part("", b"m", disposition="Content-Disposition: form-data; name=model ; ")),
        form(
            part("model", b"m"),
            part("", b"x", disposition='Content-Disposition: form-data; name="model"; filename="x"'),
        ),
        form(
            part("", b"x", disposition='Content-Disposition: form-data; name="f"; filename="; name=\\"model\\""'),
            part("model", b"m"),
        ),
        form(
            part("", b"x", disposition="Content-Disposition: form-data; name=f; filename*=UTF-8''model"),
            part("model", b"m"),
        ),
        form(part("text", b'Content-Disposition: form-data; name="model"\r\n\r\nother'), part("model", b"m")),
        form(part("text", b"\r\n--" + MARK.encode() + b"x\r\n" + part("model", b"other")), part("model", b"m")),
        form(part("models", b"x"), part("model", b"m")),
        SPOKEN.replace(b"\r\n--" + MARK.encode() + b"\r\n", b"\r\n--" + MARK.encode() + b" \t\r\n"),
    ],
)
def test_where_the_model_is(body: bytes) -> None:
    assert model_of(body) == "m"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (form(FILE), "model"),
        (form(part("model", b"m"), part("model", b"m")), "model"),
        (form(part("model", b"m"), part("model", b"other")), "model"),
        (form(part("model", b"")), "model"),
        (form(part("model", b"\xff")), "model"),
        (form(part("model", b"m" * 600)), "model"),
        (form(part("", b"m", disposition='Content-Disposition: form-data; name="model"; filename="m"')), "model"),
        (form(part("model", b"m"))[:-20], None),
        (form(part("model", b"m"), end=b""), None),
        (b"", None),
        (b"model=m", None),
        (form(part("model", b"m"), mark="other"), None),
        (form(b"model"), None),
        (form(part("model", b"m"), b""), None),
        (form(part("x", b"m", "X-Long: " + "x" * 9000), part("model", b"m")), None),
        # heads out of which a backend might read another name
        (form(part("", b"m", disposition='Content-Disposition: form-data; x="; name=model"; name="other"')), None),
        (form(part("", b"m", disposition='Content-Disposition: form-data; name="model"; name="other"')), None),
        (form(part("", b"m", disposition="Content-Disposition: form-data; name*=utf-8''model")), None),
        (form(part("", b"m", disposition='Content-Disposition: form-data; name="mo\\del"')), None),
        (form(part("", b"m", disposition='Content-Disposition: form-data;\r\n name="model"')), None),
        (form(part("model", b"m"), part("x", b"m", "X: y\nContent-Disposition: form-data; name=model")), None),
        (form(part("x", b"m", 'Content-Disposition: form-data; name="model"'), part("model", b"m")), None),
        (form(part("", b"m", disposition='Content-Disposition: attachment; name="model"')), None),
        (form(part("", b"m", disposition="X: y")), None),
        (form(part("", b"m", disposition="Content-Disposition: form-data")), None),
    ],
)
def test_a_form_that_is_none(body: bytes, param: str | None) -> None:
    with pytest.raises(Failure) as raised:
        model_of(body)
    assert (raised.value.code, raised.value.param) == ("invalid_value", param)


@pytest.mark.parametrize(
    "kind",
    [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        'multipart/form-data; boundary=""',
        f'multipart/form-data; x="; boundary={MARK}"; boundary=other',
        f"multipart/form-data; boundary={MARK}; boundary=other",
        "multipart/form-data; boundary=" + "x" * 71,
    ],
)
def test_a_boundary_that_is_none(kind: str) -> None:
    """Nor one of which a backend might read another."""
    with pytest.raises(Failure) as raised:
        model_of(SPOKEN, kind)
    assert "boundary" in raised.value.message


def test_what_is_wrong_with_a_form_is_told() -> None:
    gateway = Gateway()
    assert refused(speak(gateway, form(FILE)).answer) == (400, "invalid_value", "model")
    assert refused(speak(gateway, form(FILE), path="/v1/images/edits").answer) == (400, "invalid_value", "model")
    assert refused(speak(gateway, form(FILE), path="/v1/unheard-of").answer) == (404, "unknown_url", None)


NAMES = st.text("abcdefghijklmnop_[]-. é", min_size=1, max_size=12).filter(lambda name: name != "model")
BYTES = (
    st.lists(
        st.sampled_from(
            [b"\r\n", b"--", b"--B", b"\r\n--B", b"\r\n--Bx\r\n", b"model", b"\0", b'name="model"', b"\xff"]
        ),
        max_size=8,
    )
    .map(b"".join)
    .filter(lambda value: not any(end in b"\r\n" + value + b"\r\n" for end in (b"\r\n--B\r\n", b"\r\n--B--")))
)


@given(st.lists(st.tuples(NAMES, BYTES, st.booleans()), max_size=5), st.integers(0, 5), st.text(min_size=1, max_size=9))
def test_the_model_is_found_wherever_it_stands_and_nothing_else_changes(
    others: list[tuple[str, bytes, bool]], at: int, target: str
) -> None:
    parts = []
    for name, value, is_file in others:
        file = '; filename="f"' if is_file else ""
        parts.append(part("", value, disposition=f'Content-Disposition: form-data; name="{name}"{file}'))
    made = [*parts[:at], part("model", b"m"), *parts[at:]]
    request = PassingRequest.parse(form(*made, mark="B"), b"multipart/form-data; boundary=B")
    assert request.model == "m"
    if "\ud800" <= max(target) <= "\udfff":
        return
    expected = form(*[*parts[:at], part("model", target.encode()), *parts[at:]], mark="B")
    assert request.native(target, {}) == expected


@given(st.binary(max_size=200))
def test_no_bytes_break_it(body: bytes) -> None:
    try:
        found = model_of(b"--" + MARK.encode() + b"\r\n" + body)
    except Failure:
        return
    assert found
    assert json.dumps(found)
