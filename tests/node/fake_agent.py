"""A coding agent that does as its prompt says: ``fake_agent.py [--resume ID] [WORD…] [-- PROMPT]``.

The prompt (after ``--``, else stdin) is an order, one of the functions below with its numbers; any other text is told
back. Knows nothing of IOP, and speaks the line format of Claude Code.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time

SLEEPER = (
    "import os, signal, sys, time\n"
    "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    "if sys.argv[1:]: os.write(int(sys.argv[1]), b'.')\n"
    "time.sleep(300)"
)


def emit(**event: object) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    emit(
        type="stream_event",
        event={"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
    )


def result(text: str, **more: object) -> None:
    usage = {"input_tokens": 7, "output_tokens": 3, "cache_read_input_tokens": 2}
    emit(**{"type": "result", "subtype": "success", "is_error": False, "result": text, "usage": usage, **more})


def tell(what: str) -> None:
    """Say where and how it runs."""
    known = {
        "cwd": os.getcwd(),
        "environ": dict(os.environ),
        "arguments": sys.argv[1:],
        "leads": os.getpid() == os.getpgid(0) == os.getsid(0),
    }
    result(json.dumps(known[what]))


def hang() -> None:
    """Begin, then go on until somebody ends it."""
    say("begun")
    time.sleep(300)


def mute() -> None:
    """Not even say which session it is."""
    time.sleep(300)


def deaf() -> None:
    """The same, whatever it is told politely; with children that hold its stdout and are as deaf, one in a session."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleeper()
    sleeper(start_new_session=True)
    hang()


def note(name: str) -> None:
    """Leave word of how far it came."""
    open(os.path.join(os.environ["FOLDER"], name), "x").close()


def finish() -> None:
    """Asked to end, wait for a child of its group, which is asked too, then until somebody lets it go."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    child = os.fork()
    if not child:
        signal.sigwait({signal.SIGINT})
        os._exit(0)
    say("begun")
    signal.sigwait({signal.SIGINT})
    note("asked")
    os.waitpid(child, 0)
    note("alone")
    with open(os.path.join(os.environ["FOLDER"], "go"), "rb") as go:
        go.read(1)
    note("finished")


def insist() -> None:
    """Fill stdout, and end when it was asked to and all that it has to say was read."""
    asked: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    os.set_blocking(1, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(1, b"\n" * 65536)
    os.set_blocking(1, True)
    note("full")
    while not asked:
        os.write(1, b"\n" * 65536)
    sys.stdout.write("\n" * (2 << 20))
    sys.stdout.flush()
    note("finished")


def sleeper(start_new_session: bool = False) -> None:
    """Start a child, and return when it runs: everybody can see then whose it is."""
    ready, told = os.pipe()
    command = [sys.executable, "-S", "-c", SLEEPER, str(told)]
    subprocess.Popen(command, start_new_session=start_new_session, pass_fds=[told])
    os.close(told)
    os.read(ready, 1)
    os.close(ready)


def leave() -> None:
    """Answer, and leave a child behind that holds stdout."""
    subprocess.Popen([sys.executable, "-S", "-c", SLEEPER], start_new_session=True)
    result("left")


def flood(lines: str) -> None:
    """So many pieces of 1,000 characters, and as much on stderr."""
    for _ in range(int(lines)):
        say("x" * 1000)
    sys.stderr.write("noise\n" * 400_000)
    result("")


def line(size: str) -> None:
    """A line as long as that, then the answer."""
    emit(type="user", message={"content": [{"type": "tool_result", "content": "A" * int(size)}]})
    result("fine")


def fail(status: str, *words: str) -> None:
    """End with these words on stderr."""
    sys.stderr.write((" ".join(words) or "not logged in") + "\n")
    sys.exit(int(status))


def betray() -> None:
    """End with its key on stderr, as some do that are refused with it."""
    sys.stderr.write(f"this key is not valid: {os.environ['AGENT_KEY']}\n")
    sys.exit(1)


def complain(lines: str) -> None:
    """End with so many numbered lines on stderr behind one that begins as an error."""
    sys.stderr.write("error: at first\n" + "".join(f"number {number:04}\n" for number in range(1, int(lines) + 1)))
    sys.exit(1)


def listen() -> None:
    """Answer with what is on stdin, when that is at its end."""
    result(f"heard {sys.stdin.read()!r}")


def drip(text: str) -> None:
    """Say it byte by byte, each when the one before it was read."""
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    line = json.dumps({"type": "stream_event", "event": delta}, ensure_ascii=False).encode() + b"\n"
    before, said, after = line.partition(text.encode())
    for part in (before, *(bytes([byte]) for byte in said), after):
        os.write(1, part)
        while any(fcntl.ioctl(1, termios.FIONREAD, bytes(4))):
            time.sleep(0.0005)
    result("")


def refuse(status: str) -> None:
    """An error that calls itself a success, with exit status 0."""
    result("limit reached", is_error=True, api_error_status=int(status))


def die() -> None:
    say("half")
    os.kill(os.getpid(), signal.SIGKILL)


def nameless() -> None:
    """Answer without a word of the conversation it is in."""
    result("hello?")


def chatter() -> None:
    """Answer, and leave a child behind that talks on, unmarked and in a session of its own."""
    code = "import sys, time\nfor _ in range(400): sys.stdout.write('x\\n'); sys.stdout.flush(); time.sleep(0.01)"
    subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True, env={})
    result("left")


def stray() -> None:
    """Go on in another conversation than it was asked to."""
    emit(type="system", subtype="init", session_id="another")
    result("hello?")


ORDERS = {
    order.__name__: order
    for order in (
        *(tell, hang, mute, deaf, leave, flood, line, fail, betray, refuse, die, stray, nameless, chatter),
        *(complain, listen, drip, finish, insist),
    )
}


def main() -> None:
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else None
    prompt = words[at + 1] if at is not None else sys.stdin.read()
    session = words[words.index("--resume") + 1] if "--resume" in words else f"agent-{os.getpid()}"
    order, *numbers = prompt.split() or [""]
    if order not in ("stray", "mute", "nameless"):
        emit(type="system", subtype="init", session_id=session)
    if order in ORDERS:
        ORDERS[order](*numbers)
    else:
        result(prompt, session_id=session)


if __name__ == "__main__":
    main()
