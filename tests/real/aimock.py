"""aimock: the APIs that agents and Ollama's clients talk to, on loopback, with answers that a prompt asks for."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from pathlib import Path
from typing import Any

from running import Child, answers, free_port

ANSWER = "Hello from the mock model. This is a fixed reply."
SECOND = "Yes, I remember: this is turn two."
BEGINS = "Let me run it."
USED = "The tool has run: all done."
REFUSED = "The mock refuses this prompt."
PRINTS, PRINTED = "printf from-%s 42", "from-42"
HANGS = "tail -f /dev/null"
"""The command of a tool that does not end; some agents refuse a bare ``sleep``."""

_RUNS: dict[str, Any] = {
    "Bash": lambda command: {"command": command, "description": "as asked"},
    "bash": lambda command: {"command": command, "description": "as asked"},
    "shell_command": lambda command: {"command": command},
    "exec_command": lambda command: {"cmd": command},
    "run_shell_command": lambda command: {"command": command, "is_background": False},
}
"""The tool by which each agent runs a command → its arguments."""


def _fixtures() -> list[dict[str, Any]]:
    """Return what the mock answers: the first that fits, by words of the last user message."""
    asked: list[dict[str, Any]] = []
    for words, command in (("use the tool", PRINTS), ("hang the tool", HANGS)):
        asked.append({"match": {"userMessage": words, "hasToolResult": True}, "response": {"content": USED}})
        for tool, arguments in _RUNS.items():
            call = {"id": "call_1", "name": tool, "arguments": arguments(command)}
            asked.append(
                {
                    "match": {"userMessage": words, "toolName": tool},
                    "response": {"content": BEGINS, "toolCalls": [call]},
                }
            )
    error = {"message": REFUSED, "type": "invalid_request_error"}
    asked.append({"match": {"userMessage": "refuse this"}, "response": {"error": error, "status": 400}})
    asked.append({"match": {"userMessage": "second turn"}, "response": {"content": SECOND}})
    asked.append({"match": {}, "response": {"content": ANSWER}, "chunkSize": 8, "latency": 10})
    return asked


class Mock:
    """The program, and a relay before it that keeps what was asked: the program's own journal drops long requests.

    :param program: where npm put it.
    :ivar heard: what each connection so far has sent.
    """

    def __init__(self, program: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        fixtures = folder / "fixtures.json"
        fixtures.write_text(json.dumps({"fixtures": _fixtures()}))
        self._port = free_port()
        command = [str(program), "--port", str(self._port), "--fixtures", str(fixtures), "--log-level", "warn"]
        self.child = Child("aimock", command, folder)
        answers(self.child, f"http://127.0.0.1:{self._port}/__aimock/journal")
        self.heard: list[bytearray] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listening.accept()
            self.heard.append(heard := bytearray())
            server = socket.create_connection(("127.0.0.1", self._port))
            for ends in ((client, server, heard), (server, client, bytearray())):
                threading.Thread(target=_relay, args=ends, daemon=True).start()


def _relay(source: socket.socket, target: socket.socket, heard: bytearray) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            heard += data
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
