"""Failure kinds of HTTP servers seen in public, byte by byte through a real edge and node: HW-01, HW-02, HW-03."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import openai
import pytest
from raw_http import Wire, ask, chat, head, post
from real_gateway import KEY, Backend, Gateway, agent, provider, user

LIMIT = 16 << 20
OTHER = "sk-the-key-of-somebody-else"
WRONG = "sk-nobody-has-this-one"
MODELS = head("GET", "/v1/models", key=OTHER)
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def house(work: Path, fake: Backend) -> Iterator[Gateway]:
    """A gateway of two principals whose requests may be as long as the case wants them."""
    tokens = [
        {"token_ref": name, "principal_ref": name, "token_hash_sha256": sha256(key.encode()).hexdigest()}
        for name, key in (("ann", KEY), ("ben", OTHER))
    ]
    made = Gateway(
        work / "cases-http",
        provider("fake", fake, "openai"),
        agent("agent"),
        openai={"max_body_bytes": LIMIT, "principal_tokens": tokens},
    )
    try:
        yield made.start()
    finally:
        made.stop()


# ---- HW-01: framing that two readers could read in two ways ----------------------------------------------------------


def _of(*lines: str, body: bytes = b"", host: str = "host: h\r\n") -> bytes:
    head = f"POST {CHAT} HTTP/1.1\r\n{host}authorization: Bearer {KEY}\r\n"
    return (head + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode() + body


AMBIGUOUS = {
    "two lengths": _of("Content-Length: 3", "Content-Length: 0", body=b"abc"),
    "length and chunked": _of("Content-Length: 3", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "xchunked": _of("Transfer-Encoding: xchunked", body=b"0\r\n\r\n"),
    "length +3": _of("Content-Length: +3", body=b"abc"),
    "chunk size 0x3": _of("Transfer-Encoding: chunked", body=b"0x3\r\nabc\r\n0\r\n\r\n"),
    "bare LF": _of("Foo: x\nContent-Length: 44"),
    "no host": _of("Content-Length: 0", host=""),
    "two hosts": _of("Content-Length: 0", host="host: h\r\nhost: i\r\n"),
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_hw_01_ambiguous_framing(house: Gateway, fake: Backend, name: str) -> None:
    """HW-01: refused, and what another principal asks behind it on the same connection is not processed."""
    asked = fake.stats["asked"]
    with Wire(house.port) as wire:
        answer = wire.ask(AMBIGUOUS[name] + MODELS + chat("smuggled", key=OTHER))
        assert (answer.status, answer.error["code"]) == (400, "invalid_request")
        assert answer.headers["connection"] == "close"
        assert wire.closed()
    assert fake.stats["asked"] == asked


def test_hw_01_pipelined_answers_are_their_principals(house: Gateway) -> None:
    """HW-01: in the order of the requests, the first one slow; and each principal has a session `s` of its own."""

    def told(key: str) -> bytes:
        return chat("tell arguments", model="agent", key=key, metadata={"session_id": "s"})

    with Wire(house.port) as wire:
        wire.send(chat("silence 0.3") + head("GET", "/v1/models", key=WRONG) + told(KEY) + told(OTHER) + MODELS)
        wire.send(told(KEY) + told(OTHER))
        slow, denied = wire.answer(), wire.answer("GET")
        firsts = [wire.answer(), wire.answer()]
        models = wire.answer("GET")
        seconds = [wire.answer(), wire.answer()]
    assert slow.json["choices"][0]["message"]["content"] == "late"
    assert (denied.status, denied.error["code"]) == (401, "invalid_api_key")
    assert {model["id"] for model in models.json["data"]} == {"fake", "agent"}
    assert [_resumed(answer.json) for answer in firsts] == [None, None]
    ann, ben = (_resumed(answer.json) for answer in seconds)
    assert ann
    assert ben
    assert ann != ben


def _resumed(answer: Any) -> str | None:
    """Return the agent's own name of the conversation it was told to go on with."""
    words: list[str] = json.loads(answer["choices"][0]["message"]["content"])
    return words[words.index("--resume") + 1] if "--resume" in words else None


def test_hw_01_header_names_in_any_case(house: Gateway) -> None:
    """HW-01"""
    text = json.dumps({"model": "fake", "messages": user("hello")}).encode()
    lines = ["HOST: h", f"AUTHORIZATION: Bearer {KEY}", "content-TYPE: application/json"]
    lines += [f"cOnTeNt-LeNgTh: {len(text)}"]
    with Wire(house.port) as wire:
        answer = wire.ask("\r\n".join([f"POST {CHAT} HTTP/1.1", *lines, "", ""]).encode() + text)
        assert answer.status == 200
        twice = "\r\n".join([f"POST {CHAT} HTTP/1.1", *lines, f"authorization: Bearer {OTHER}", "", ""])
        assert wire.ask(twice.encode() + text).status == 401, "the same header twice, in two spellings"


# ---- HW-02: Expect: 100-continue -------------------------------------------------------------------------------------

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def _expecting(text: bytes, expectation: str = "100-continue", *, key: str = KEY, version: str = "1.1") -> bytes:
    made = head("POST", CHAT, f"content-length: {len(text)}", f"expect: {expectation}", key=key)
    return made.replace(b"HTTP/1.1", f"HTTP/{version}".encode(), 1)


def test_hw_02_body_after_100(house: Gateway, fake: Backend) -> None:
    """HW-02: a good token; 3 MB are sent only after the 100."""
    text = json.dumps(_with_image(3)).encode()
    with Wire(house.port) as wire:
        wire.send(_expecting(text))
        assert wire.socket.recv(len(CONTINUE)) == CONTINUE
        assert wire.ask(text).status == 200
        assert fake.stats["last"]["body"] == json.loads(text)
        assert wire.ask(chat("hello")).status == 200


@pytest.mark.parametrize("patient", [True, False])
def test_hw_02_bad_token(house: Gateway, fake: Backend, patient: bool) -> None:
    """HW-02: a 401 without a 100; a body that comes all the same is never read as requests."""
    asked = fake.stats["asked"]
    text = chat("smuggled") * (3 << 20 >> 8)
    with Wire(house.port) as wire:
        wire.send(_expecting(text, key=WRONG))
        if not patient:
            wire.send(text)
        assert wire.socket.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 401"
        answer = wire.answer()
        assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
        assert answer.headers["connection"] == "close"
        assert wire.closed()
    assert fake.stats["asked"] == asked


@pytest.mark.parametrize("whole", [True, False])
def test_hw_02_unknown_expectation(house: Gateway, fake: Backend, whole: bool) -> None:
    """HW-02: 417, whether the client sends its body or waits for something."""
    asked = fake.stats["asked"]
    text = json.dumps({"model": "fake", "messages": user("hello")}).encode()
    with Wire(house.port) as wire:
        answer = wire.ask(_expecting(text, "200-ok") + (text if whole else b""))
        assert (answer.status, answer.error["code"]) == (417, "expectation_failed")
        assert wire.closed()
    assert fake.stats["asked"] == asked


def test_hw_02_http_1_0(house: Gateway) -> None:
    """HW-02: the first thing said is the answer, and it is said after the body."""
    text = json.dumps({"model": "fake", "messages": user("hello")}).encode()
    with Wire(house.port) as wire:
        wire.send(_expecting(text, version="1.0"))
        assert wire.quiet(0.1)
        wire.send(text)
        assert wire.socket.recv(12) == b"HTTP/1.1 200"


# ---- HW-03: bodies with images, and bodies over the limit ------------------------------------------------------------


def _with_image(megabytes: int) -> dict[str, Any]:
    """Return a request with an image in it, which is as long as that in base64."""
    image = base64.b64encode(bytes(range(256)) * (megabytes << 12) * 3)[: megabytes << 20].decode()
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}
    seen = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]}
    return {"model": "fake", "messages": [seen, *user("hello")]}


def test_hw_03_large_image(house: Gateway, fake: Backend) -> None:
    """HW-03: 6 MB reach the backend whole; while they come, and while they go on, others are answered."""
    document = _with_image(6)
    request = post(json.dumps(document).encode())
    with Wire(house.port) as wire, Wire(house.port) as other:
        wire.send(request[: len(request) // 2])
        assert other.ask(chat("meanwhile")).status == 200
        wire.send(request[len(request) // 2 :])
        begun = time.monotonic()
        assert other.ask(chat("meanwhile")).status == 200
        assert time.monotonic() - begun < 2
        assert wire.answer().status == 200
        assert wire.ask(post(json.dumps(document).encode())).status == 200
    assert fake.stats["last"]["body"] == document


@pytest.mark.parametrize("patient", [True, False])
@pytest.mark.parametrize("chunked", [False, True])
def test_hw_03_over_the_limit(house: Gateway, fake: Backend, chunked: bool, patient: bool) -> None:
    """HW-03: a 413 that can be read, a close, and nothing of the body is taken for a request.

    A patient client reads as soon as it may; the other one sends all that it has first.
    """
    asked = fake.stats["asked"]
    piece = (chat("smuggled") * 300)[: 1 << 16]
    pieces = [piece] * (17 << 4)
    if chunked:
        pieces = [b"%x\r\n%b\r\n" % (len(each), each) for each in pieces]
        request = head("POST", CHAT, "transfer-encoding: chunked")
    else:
        request = head("POST", CHAT, f"content-length: {len(piece) * len(pieces)}")
    with Wire(house.port) as wire:
        wire.send(request)
        sent = b"".join(pieces) if chunked or not patient else b""
        if patient:
            wire.send(sent)
            answer = wire.answer()
        else:
            answer = wire.ask(sent + b"0\r\n\r\n" + MODELS if chunked else sent + MODELS)
        assert (answer.status, answer.error["code"]) == (413, "request_too_large")
        assert answer.error["type"] == "invalid_request_error"
        assert answer.headers["connection"] == "close"
        assert wire.closed()
    assert ask(house, chat("hello")).status == 200
    assert fake.stats["asked"] == asked + 1


def test_hw_03_the_same_client_goes_on(house: Gateway) -> None:
    """HW-03: an SDK reads the refusal as one, and its next request is answered."""
    with house.client() as client:
        for _ in range(2):
            with pytest.raises(openai.APIStatusError) as caught:
                client.chat.completions.create(**_with_image(17))
            assert (caught.value.status_code, caught.value.code) == (413, "request_too_large")
            answer = client.chat.completions.create(model="fake", messages=user("hello"))
            assert answer.choices[0].message.content == "hello"
