"""h11 as a second opinion on the client: it reads what the client sends, and the client reads what it writes."""

from __future__ import annotations

import h11
from http_doubles import Heard, Yard
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from iop.http.client import Timers

TOKEN = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_", min_size=1, max_size=12)
VALUE = st.text("abcXYZ0189 \t,;=/\"'()", max_size=30).map(str.strip)
OWN = {"host", "content-length", "transfer-encoding", "connection", "content-encoding", "upgrade"}
EXTRA = st.lists(st.tuples(TOKEN.filter(lambda name: name not in OWN), VALUE), max_size=5)
PIECES = st.lists(st.binary(min_size=1, max_size=50), max_size=5)


def cut(data: st.DataObject, stream: bytes) -> list[int]:
    return data.draw(st.lists(st.integers(0, len(stream)), max_size=12), label="cuts")


@settings(deadline=None)
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    target=st.text("abcXYZ019/-._~%?=&", max_size=30).map(lambda tail: "/" + tail),
    extra=EXTRA,
    body=st.binary(max_size=200),
)
def test_what_the_client_sends_is_understood(
    method: str, target: str, extra: list[tuple[str, str]], body: bytes
) -> None:
    yard = Yard()
    headers = [(name.encode(), value.encode()) for name, value in extra]
    yard.client.request(method, target, headers, body, Heard(), Timers())
    server = h11.Connection(h11.SERVER)
    server.receive_data(yard.wire.take())
    request = server.next_event()
    assert isinstance(request, h11.Request)
    assert (request.method, request.target) == (method.encode(), target.encode())
    assert [(n, v) for n, v in request.headers if n not in (b"host", b"content-length")] == headers
    assert dict(request.headers)[b"host"] == b"backend:8000"
    got = b""
    while isinstance(event := server.next_event(), h11.Data):
        got += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert got == body
    yard.close()


def written_by_h11(
    status: int, headers: list[tuple[str, str]], pieces: list[bytes], framing: str, method: str = "POST"
) -> bytes:
    server = h11.Connection(h11.SERVER)
    version = b"1.0" if framing == "close" else b"1.1"
    server.receive_data(b"%b / HTTP/%b\r\nHost: h\r\nContent-Length: 0\r\n\r\n" % (method.encode(), version))
    assert isinstance(server.next_event(), h11.Request)
    assert isinstance(server.next_event(), h11.EndOfMessage)
    own = [("content-length", str(sum(map(len, pieces))))] if framing == "length" else []
    stream = server.send(h11.Response(status_code=status, headers=[*headers, *own])) or b""
    for piece in pieces:
        stream += server.send(h11.Data(data=piece)) or b""
    return stream + (server.send(h11.EndOfMessage()) or b"")


@settings(deadline=None)
@given(
    status=st.integers(200, 599),
    extra=EXTRA,
    pieces=PIECES,
    framing=st.sampled_from(["length", "chunked", "close"]),
    data=st.data(),
)
def test_what_h11_writes_is_understood(
    status: int, extra: list[tuple[str, str]], pieces: list[bytes], framing: str, data: st.DataObject
) -> None:
    if status in (204, 304):
        pieces = []
    stream = written_by_h11(status, extra, pieces, framing)
    yard = Yard()
    _, heard = yard.ask()
    yard.wire.feed_split(stream, cut(data, stream))
    closes = framing == "close"
    assert yard.wire.disconnecting == (closes and status in (204, 304))
    if closes:
        yard.wire.lose()
    assert (heard.status, heard.heads, heard.ends) == (status, 1, 1)
    assert heard.body == b"".join(pieces)
    kept = [(n.decode(), v.rstrip(b" \t").decode()) for n, v in heard.headers]
    assert [h for h in kept if h[0] not in OWN] == extra
    if not closes:
        _, again = yard.ask()
        yard.wire.feed(stream)
        assert (again.ends, yard.backend.dialled) == (1, 1)
    yard.close()


SPICE = st.sampled_from(
    [
        *(b"\n", b"\r", b"\r\n", b" ", b"\0", b":", b",", b"0", b"9", b"+", b"x", b"\xff", b";", b"-"),
        *(b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n"),
    ]
)


@settings(deadline=None, max_examples=300)
@given(
    framing=st.sampled_from(["length", "chunked"]),
    changes=st.lists(st.tuples(st.integers(0, 150), st.integers(0, 2), SPICE), min_size=1, max_size=3),
    data=st.data(),
)
def test_a_damaged_answer_looks_whole_only_to_whom_h11_agrees(
    framing: str, changes: list[tuple[int, int, bytes]], data: st.DataObject
) -> None:
    stream = written_by_h11(200, [("content-type", "text/plain")], [b"hello", b"world"], framing)
    for place, removed, added in changes:
        place = min(place, len(stream))
        stream = stream[:place] + added + stream[place + removed :]
    yard = Yard()
    _, heard = yard.ask()
    yard.wire.feed_split(stream, cut(data, stream))
    if not heard.over:
        yard.wire.lose()
    assert heard.over
    if heard.ends:
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="POST", target="/", headers=[("host", "h"), ("content-length", "0")]))
        client.send(h11.EndOfMessage())
        try:
            body = whole_by_h11(client, stream)
        except h11.RemoteProtocolError:
            assume(False)  # llhttp is kinder to a status line, a chunk extension, a reason phrase
        assert heard.body == body
    yard.close()


def whole_by_h11(client: h11.Connection, stream: bytes) -> bytes:
    client.receive_data(stream)
    client.receive_data(b"")
    body = b""
    while True:
        event = client.next_event()
        if isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return body


@settings(deadline=None)
@given(junk=st.binary(max_size=200), data=st.data())
def test_junk_is_a_failure(junk: bytes, data: st.DataObject) -> None:
    yard = Yard()
    _, heard = yard.ask()
    yard.wire.feed_split(junk, cut(data, junk))
    yard.wire.lose()
    assert heard.failure is not None
    assert heard.failure.code == "upstream_error"
    yard.close()
