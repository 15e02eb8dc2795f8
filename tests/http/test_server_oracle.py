"""h11 as a second opinion on the server: it reads what the server writes, and what it refuses the server refuses."""

from __future__ import annotations

from typing import Any

import h11
from http_doubles import House, Wire, read_answers
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

TOKEN = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-_!#", min_size=1, max_size=12)
VALUE = st.text("abcXYZ0189 \t,;=/\"'()", max_size=30).map(str.strip)
OWN = {"host", "content-length", "transfer-encoding", "connection", "expect", "upgrade"}
EXTRA = st.lists(st.tuples(TOKEN.filter(lambda name: name.lower() not in OWN), VALUE), max_size=5)
TARGET = st.text("abcXYZ019/-._~%?=&", max_size=30).map(lambda tail: "/" + tail)
PIECES = st.lists(st.binary(min_size=1, max_size=50), max_size=5)


class Echo:
    """Answers with what it understood, in the way the path asks for."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def admit(self, exchange: Any) -> None:
        pass

    def handle(self, exchange: Any) -> None:
        self.seen.append((exchange.method, exchange.target, dict(exchange.headers), exchange.body))
        if exchange.header(b"x-streamed") is None:
            exchange.respond(200, [(b"content-type", b"text/plain")], exchange.body)
        else:
            exchange.start(200, [(b"content-type", b"text/plain")])
            exchange.write(exchange.body[:3])
            exchange.write(exchange.body[3:])
            exchange.finish()

    def refuse(self, exchange: Any, failure: Any) -> None:
        self.seen.append(failure)
        exchange.respond(failure.http_status, [], failure.message.encode())


def cut(data: st.DataObject, stream: bytes) -> list[int]:
    return data.draw(st.lists(st.integers(0, len(stream)), max_size=12), label="cuts")


@settings(deadline=None)
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"]),
    target=TARGET,
    extra=EXTRA,
    pieces=PIECES,
    chunked=st.booleans(),
    streamed=st.booleans(),
    data=st.data(),
)
def test_what_h11_writes_is_understood_and_answered_so_that_h11_understands(
    method: str,
    target: str,
    extra: list[tuple[str, str]],
    pieces: list[bytes],
    chunked: bool,
    streamed: bool,
    data: st.DataObject,
) -> None:
    client = h11.Connection(h11.CLIENT)
    framing = ("transfer-encoding", "chunked") if chunked else ("content-length", str(sum(map(len, pieces))))
    headers = [("host", "h"), framing, *extra, *([("x-streamed", "1")] if streamed else [])]
    stream = client.send(h11.Request(method=method, target=target, headers=headers)) or b""
    for piece in pieces:
        stream += client.send(h11.Data(data=piece)) or b""
    stream += client.send(h11.EndOfMessage()) or b""

    house = House(app=Echo())
    wire, out = house.ask(stream, cut(data, stream))
    client.receive_data(out)
    response = client.next_event()
    assert isinstance(response, h11.Response)
    assert response.status_code == 200
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert client.trailing_data == (b"", False)
    assert body == (b"" if method == "HEAD" else b"".join(pieces))

    (seen,) = house.app.seen
    assert seen[:2] == (method.encode(), target.encode())
    assert seen[3] == b"".join(pieces)
    for name, _ in headers:
        same = [v for n, v in headers if n.lower() == name.lower()]
        assert seen[2][name.lower().encode()] == ", ".join(same).encode()
    client.start_next_cycle()
    assert not wire.disconnecting
    house.close()


def opinion_of_h11(stream: bytes) -> str:
    """What h11 makes of a stream: ``refused``, ``more`` or ``whole``."""
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    server.receive_data(stream)
    try:
        while True:
            event = server.next_event()
            if event is h11.NEED_DATA:
                return "more"
            if isinstance(event, h11.EndOfMessage):
                return "whole"
            if event is h11.PAUSED:
                return "paused"
    except h11.RemoteProtocolError:
        return "refused"


BASE = (
    b"POST /v1/chat HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /v1/chat HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nAccept: */*\r\nX-Y: z\r\n\r\n",
    b"GET / HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n",
)
SPICE = st.sampled_from(
    [
        *(
            b"\n",
            b"\r",
            b"\r\n",
            b" ",
            b"\t",
            b"\0",
            b":",
            b",",
            b"0",
            b"3",
            b"+",
            b"x",
            b"0x",
            b"\x0b",
            b"\xff",
            b";",
            b"-",
        ),
        *(b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n", b"Host: i\r\n"),
    ]
)


@settings(deadline=None, max_examples=400)
@given(
    base=st.sampled_from(BASE),
    changes=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 2), SPICE), min_size=1, max_size=3),
    data=st.data(),
)
@example(BASE[0], [(16, 0, b"X"), (22, 0, b"\n")], None)
def test_what_h11_refuses_is_refused(
    base: bytes, changes: list[tuple[int, int, bytes]], data: st.DataObject | None
) -> None:
    stream = base
    for place, removed, added in changes:
        place = min(place, len(stream))
        stream = stream[:place] + added + stream[place + removed :]
    assume(opinion_of_h11(stream) == "refused")
    assume(not lenient(stream))

    house = House(app=Echo())
    wire: Wire = house.connect()
    wire.feed_split(stream, cut(data, stream) if data is not None else [])
    answers = read_answers(wire.take())
    handled = [seen for seen in house.app.seen if isinstance(seen, tuple)]
    assert handled == []
    if not answers:  # llhttp waits for the line's end before it judges
        house.pass_time(80)
        answers = read_answers(wire.take())
    assert [a.status // 100 for a in answers] in ([4], [5])
    assert answers[0].closes
    house.close()


def lenient(stream: bytes) -> bool:
    """Where llhttp is kinder than h11, and nothing can hide in it."""
    line, _, _ = stream.lstrip(b"\r\n").partition(b"\r\n")
    words = line.split(b" ")
    if len(words) != 3:  # more than one space before the target
        return True
    return stream[:1] in b"\r\n"  # empty lines before the request


@settings(deadline=None, max_examples=300)
@given(junk=st.binary(max_size=200), data=st.data())
def test_junk_never_reaches_the_application_and_never_breaks_the_server(junk: bytes, data: st.DataObject) -> None:
    house = House(app=Echo())
    wire = house.connect()
    wire.feed_split(junk, cut(data, junk))
    house.pass_time(200, 1)
    assert [seen for seen in house.app.seen if isinstance(seen, tuple)] == []
    assert all(a.status in (400, 408, 505) for a in read_answers(wire.take()))
    assert house.server.connections == set()
    house.close()
