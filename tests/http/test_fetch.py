"""A small document, asked for and collected: whole, too large, cancelled, failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from http_doubles import Yard
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionRefusedError
from twisted.python.failure import Failure as TwistedFailure

from iop.errors import Failure
from iop.http.fetch import fetch

Lay = Callable[..., Yard]


def heard(asked: Deferred[Any]) -> list[Any]:
    """Return where the result comes, a failure as its exception."""
    got: list[Any] = []
    asked.addBoth(lambda result: got.append(result.value if isinstance(result, TwistedFailure) else result))
    return got


def test_a_document_in_pieces(yard: Yard) -> None:
    got = heard(fetch(yard.client, "GET", "/v1/models", [(b"a", b"b")]))
    assert yard.wire.take().startswith(b"GET /v1/models HTTP/1.1\r\n")
    yard.wire.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc")
    assert got == []
    yard.wire.feed(b"def")
    assert got == [(200, b"abcdef")]


def test_any_status_is_an_answer(yard: Yard) -> None:
    got = heard(fetch(yard.client, "GET", "/x"))
    yard.wire.feed(b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\nno")
    assert got == [(503, b"no")]


def test_the_limit_is_exact_and_what_is_too_large_is_not_read_on(yard: Yard) -> None:
    for size, code in ((10, ""), (11, "answer_too_large")):
        got = heard(fetch(yard.client, "GET", "/x", largest=10))
        yard.wire.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n" + b"d" * size)
        assert [failure.code for failure in got] == [code] * bool(code)
        assert yard.wire.aborted == bool(code)
        if not code:
            yard.wire.lose()
            assert [failure.code for failure in got] == ["upstream_error"]
    yard.wire.feed(b"d" * 100)
    assert len(got) == 1


def test_cancelling_closes_the_connection(yard: Yard) -> None:
    asked = fetch(yard.client, "GET", "/x")
    got = heard(asked)
    yard.wire.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")
    asked.cancel()
    assert yard.wire.aborted
    assert [type(error) for error in got] == [CancelledError]
    yard.pass_time(30)
    assert len(got) == 1


def test_cancelling_before_there_is_a_connection(lay: Lay) -> None:
    yard = lay(waits=True)
    asked = fetch(yard.client, "GET", "/x")
    got = heard(asked)
    asked.cancel()
    assert yard.backend.cancelled == 1
    assert [type(error) for error in got] == [CancelledError]


def test_failures_are_the_clients(lay: Lay) -> None:
    yard = lay(waits=True)
    refused = heard(fetch(yard.client, "GET", "/x"))
    yard.backend.refuse(ConnectionRefusedError())
    silent = heard(fetch(yard.client, "GET", "/x"))
    yard.backend.accept()
    yard.pass_time(6)
    broken = heard(fetch(yard.client, "GET", "/x"))
    yard.backend.accept().lose()
    failures: list[Failure] = [*refused, *silent, *broken]
    assert [failure.code for failure in failures] == ["upstream_connect", "upstream_timeout", "upstream_error"]
