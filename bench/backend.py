"""A model server that does no work: what the gateway costs is what is left. usage: backend.py PORT

``POST …/chat/completions`` answers a fixed document, or with ``"stream": true`` as many chunks as ``max_tokens`` says:
as fast as the socket takes them, or one every ``seed`` microseconds. A chunk's content is ``@`` and the time it was
made, in microseconds of the monotonic clock, so that a client on the same machine can tell how long it was under way.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time

DOCUMENT = json.dumps(
    {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "A plain sentence, said six times over. " * 6},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 25, "completion_tokens": 44, "total_tokens": 69},
    }
).encode()
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n%b\r\n\r\n"
WHOLE = HEAD % (b"application/json", b"content-length: %d" % len(DOCUMENT)) + DOCUMENT
STREAM = HEAD % (b"text/event-stream", b"transfer-encoding: chunked")
CHUNK = (
    'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1,"model":"bench",'
    '"choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}]}\n\n'
)
BURST = 32


def framed(text: str) -> bytes:
    data = text.encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def member(body: bytes, name: bytes, default: int) -> int:
    found = re.search(rb'"%b":\s*(\d+)' % name, body)
    return int(found[1]) if found else default


class Backend(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.buffer, self.open = transport, b"", asyncio.Event()
        self.open.set()

    def pause_writing(self):
        self.open.clear()

    def resume_writing(self):
        self.open.set()

    def connection_lost(self, reason):
        self.open.set()

    def data_received(self, data):
        self.buffer += data
        head, blank, rest = self.buffer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        size = int(length[1]) if length else 0
        if not blank or len(rest) < size:
            return
        body, self.buffer = rest[:size], rest[size:]
        if re.search(rb'"stream":\s*true', body):
            self.task = asyncio.ensure_future(self.stream(member(body, b"max_tokens", 64), member(body, b"seed", 0)))
        else:
            self.transport.write(WHOLE)

    async def stream(self, chunks, gap):
        self.transport.write(STREAM)
        due = time.monotonic()
        for number in range(chunks):
            if gap:
                due += gap / 1e6
                await asyncio.sleep(due - time.monotonic())
            elif number % BURST == 0:
                await asyncio.sleep(0)
            await self.open.wait()
            if self.transport.is_closing():
                return
            now = f'{{"content":"@{time.monotonic_ns() // 1000:016}"}}'
            self.transport.write(framed(CHUNK % (now, "null")))
        usage = f'{{"id":"chatcmpl-bench","choices":[],"usage":{{"prompt_tokens":25,"completion_tokens":{chunks}}}}}'
        end = framed(CHUNK % ("{}", '"stop"')) + framed(f"data: {usage}\n\n") + framed("data: [DONE]\n\n")
        self.transport.write(end + b"0\r\n\r\n")


async def main(port):
    server = await asyncio.get_running_loop().create_server(Backend, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
