"""What the edge does not know and passes on, through edge and node: to llama.cpp, and to a backend that says it again.

All that may change is the model's name. ``docs/contracts/openai.md`` (Passing on what is not known).
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from hashlib import sha256
from typing import Any

import openai
import pytest
from real_gateway import KEY, Backend, Gateway

TEXTS = ["of this model", "Every answer is", "the same short line"]
TARGET = "vendor/fake:7b"
BOUNDARY = "-" * 24 + "7d1f"
SOUND = bytes(range(256)) * 400 + b"\r\n--" + b"-" * 23 + b"7d1f\r\n"
"""More than one read, every byte there is, and nearly a boundary."""


def post(gateway: Gateway, path: str, body: bytes, kind: str = "application/json") -> tuple[int, Any, bytes]:
    """Return status, headers and body."""
    headers = {"authorization": f"Bearer {KEY}", "content-type": kind}
    asked = urllib.request.Request(f"{gateway.url}{path}", body, headers)
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def form(*fields: tuple[str, bytes]) -> bytes:
    """Return a form as curl writes it."""
    parts = [f"--{BOUNDARY}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + body for head, body in fields]
    return b"\r\n".join([*parts, f"--{BOUNDARY}--\r\n".encode()])


# ---- llama.cpp -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/rerank", "/v1/reranking"])
def test_rerank(gateway: Gateway, ranks: Backend, path: str) -> None:
    """As llama.cpp itself ranks."""
    asked = json.dumps({"model": "ranks", "query": "Every answer", "documents": TEXTS, "top_n": 2}).encode()
    status, headers, body = post(gateway, path, asked)
    assert (status, headers.get_content_type()) == (200, "application/json")
    assert headers["x-request-id"]
    with urllib.request.urlopen(f"{ranks.url}{path}", asked, timeout=20) as direct:
        said = json.load(direct)
    assert json.loads(body) == said
    assert len(said["results"]) == 2


def test_refused_by_llama(gateway: Gateway) -> None:
    """Its own words, in the shape that every error has; SDKs do not ask again."""
    asked = json.dumps({"model": "tiny", "query": "x", "documents": TEXTS}).encode()
    status, headers, body = post(gateway, "/v1/rerank", asked)
    error = json.loads(body)["error"]
    assert (status, headers["x-should-retry"]) == (501, "false")
    assert "does not support reranking" in error["message"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["code"]) == ("server_error", "upstream_error")


def test_a_path_that_llama_does_not_have(gateway: Gateway) -> None:
    """Its 404, which no client takes for a model that is not there."""
    status, _, body = post(gateway, "/v1/moderations", b'{"model":"tiny","input":"x"}')
    assert status == 404
    assert json.loads(body)["error"]["code"] != "model_not_found"


# ---- byte for byte ---------------------------------------------------------------------------------------------------


def test_a_document(gateway: Gateway, fake: Backend) -> None:
    """Numbers digit for digit, members that nobody knows, and white space."""
    rest = b',\n "seed":1.10, "odd" : [1e2, {"model": "renamed"}],"text":"\\u00fc"} '
    status, _, body = post(gateway, "/v1/odd/path.v2", b'{ "model" :"renamed"' + rest)
    assert (status, json.loads(body)["path"]) == (200, "/v1/odd/path.v2")
    sent = b'{ "model" :"vendor/fake:7b"' + rest
    assert json.loads(body)["sha256"] == sha256(sent).hexdigest()


def test_a_form(gateway: Gateway, fake: Backend) -> None:
    """A sound of more than one read; the model is named behind it, and in a file's name too."""
    sound = 'name="file"; filename="model.wav"\r\nContent-Type: audio/wav', SOUND
    language = 'name="language"', b"de"
    body = form(language, sound, ('name="model"', b"renamed"))
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    status, _, answer = post(gateway, "/v1/audio/transcriptions", body, kind)
    sent = form(language, sound, ('name="model"', TARGET.encode()))
    assert status == 200
    assert json.loads(answer) == {
        "path": "/v1/audio/transcriptions",
        "type": kind,
        "length": len(sent),
        "sha256": sha256(sent).hexdigest(),
        "text": "said again",
    }


def test_the_sdk_transcribes(gateway: Gateway, fake: Backend) -> None:
    answer = gateway.client().audio.transcriptions.create(model="renamed", file=("a.wav", SOUND))
    assert answer.text == "said again"


def test_the_sdk_speaks(gateway: Gateway, fake: Backend) -> None:
    """An answer that is neither JSON nor text."""
    sound = gateway.client().audio.speech.create(model="renamed", voice="alloy", input="Hello")
    assert sound.response.headers["content-type"] == "audio/mpeg"
    assert sound.content == bytes(range(256)) * 400


def test_a_form_of_an_unknown_model(gateway: Gateway) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        gateway.client().audio.transcriptions.create(model="nothing", file=("a.wav", b"x"))
    assert caught.value.code == "model_not_found"


def test_a_query_does_not_go_on(gateway: Gateway, fake: Backend) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)
    headers = {"authorization": f"Bearer {KEY}"}
    connection.request("POST", "/v1/odd?key=secret", b'{"model":"fake"}', headers)
    answer = connection.getresponse()
    assert (answer.status, json.load(answer)["path"]) == (200, "/v1/odd")
    connection.close()
