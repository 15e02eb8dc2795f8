"""aimock: the APIs that agents and Ollama's clients talk to, on loopback, with answers that a prompt asks for."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from running import Child, answers, free_port

ANSWER = "Hello from the mock model. This is a fixed reply."
SECOND = "Yes, I remember: this is turn two."
USED = "The tool has run: all done."
REFUSED = "The mock refuses this prompt."
HANGS = "tail -f /dev/null"
"""The command of a tool that does not end."""

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
    for words, command in (("use the tool", "echo from-the-tool"), ("hang the tool", HANGS)):
        asked.append({"match": {"userMessage": words, "hasToolResult": True}, "response": {"content": USED}})
        for tool, arguments in _RUNS.items():
            call = {"id": "call_1", "name": tool, "arguments": arguments(command)}
            asked.append({"match": {"userMessage": words, "toolName": tool}, "response": {"toolCalls": [call]}})
    error = {"message": REFUSED, "type": "invalid_request_error"}
    asked.append({"match": {"userMessage": "refuse this"}, "response": {"error": error, "status": 400}})
    asked.append({"match": {"userMessage": "second turn"}, "response": {"content": SECOND}})
    asked.append({"match": {}, "response": {"content": ANSWER}, "chunkSize": 8, "latency": 10})
    return asked


class Mock:
    """The program.

    :param program: where npm put it.
    """

    def __init__(self, program: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        fixtures = folder / "fixtures.json"
        fixtures.write_text(json.dumps({"fixtures": _fixtures()}))
        command = [str(program), "--port", str(self.port), "--fixtures", str(fixtures), "--log-level", "warn"]
        self.child = Child("aimock", command, folder)
        answers(self.child, f"{self.url}/__aimock/journal")

    def asked(self) -> list[str]:
        """Return the bodies of all requests so far, as JSON."""
        with urllib.request.urlopen(f"{self.url}/__aimock/journal", timeout=10) as answer:
            return [json.dumps(entry.get("body")) for entry in json.load(answer)]
