"""A load of chat requests, as one JSON line of what came of it.

usage: load.py PORT --connections N (--requests N | --seconds S) [--stream CHUNKS [--gap MICROSECONDS]]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time

STAMP = re.compile(rb'"@(\d{16})"')


def request(options) -> bytes:
    document = {
        "model": "bench",
        "messages": [{"role": "user", "content": "Tell me about foxes. " * 20}],
        "max_tokens": 44,
    }
    if options.stream:
        document |= {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": options.stream}
        document |= {"seed": options.gap} if options.gap else {}
    body = json.dumps(document).encode()
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer bench-key\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    ) + body


class Client(asyncio.Protocol):
    """One connection that asks again and again."""

    def __init__(self, load):
        self.load = load

    def connection_made(self, transport):
        self.transport = transport
        self.ask()

    def ask(self):
        self.buffer, self.head, self.started = b"", b"", time.monotonic_ns()
        if self.load.take():
            self.transport.write(self.load.request)
        else:
            self.transport.close()

    def data_received(self, data):
        load = self.load
        if load.options.stream:
            now = time.monotonic_ns() // 1000
            stamps = STAMP.findall(data)
            load.chunks += len(stamps)
            load.transit += [now - int(stamp) for stamp in stamps[:: load.every]]
        self.buffer = self.buffer[-64:] + data if self.head and load.options.stream else self.buffer + data
        if not self.head and b"\r\n\r\n" in self.buffer:
            self.head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        if self.head and self.whole():
            self.answered()

    def whole(self):
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", self.head)
        return len(self.buffer) >= int(length[1]) if length else self.buffer.endswith(b"0\r\n\r\n")

    def answered(self):
        good = self.head.startswith(b"HTTP/1.1 200")
        self.load.ended(good, (time.monotonic_ns() - self.started) // 1000)
        self.ask()

    def connection_lost(self, reason):
        self.load.closed()


class Load:
    def __init__(self, options):
        self.options, self.request = options, request(options)
        self.left = options.requests or 1 << 60
        self.until = time.monotonic() + options.seconds if options.seconds else None
        self.ok = self.errors = self.chunks = self.open = 0
        self.every = 1 if options.gap else 16
        self.latency, self.transit = [], []
        self.done = asyncio.get_running_loop().create_future()

    def take(self):
        if self.left == 0 or (self.until is not None and time.monotonic() >= self.until):
            return False
        self.left -= 1
        return True

    def ended(self, good, microseconds):
        self.ok, self.errors = self.ok + good, self.errors + (not good)
        self.latency.append(microseconds)

    def closed(self):
        self.open -= 1
        if self.open == 0 and not self.done.done():
            self.done.set_result(None)


def percentiles(values):
    ordered = sorted(values)
    return {f"p{p}": ordered[min(len(ordered) - 1, len(ordered) * p // 100)] for p in (50, 99)} if ordered else {}


async def main(options):
    load = Load(options)
    began = time.monotonic()
    for _ in range(options.connections):
        load.open += 1
        await asyncio.get_running_loop().create_connection(lambda: Client(load), "127.0.0.1", options.port)
    await load.done
    print(
        json.dumps(
            {
                "ok": load.ok,
                "errors": load.errors,
                "chunks": load.chunks,
                "seconds": round(time.monotonic() - began, 3),
                "latency_us": percentiles(load.latency),
                "transit_us": percentiles(load.transit),
            }
        )
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--stream", type=int, default=0)
    parser.add_argument("--gap", type=int, default=0)
    asyncio.run(main(parser.parse_args()))
