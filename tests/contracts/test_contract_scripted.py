"""The scripted double passes the adapters' contract, so tests that use it mean something."""

from __future__ import annotations

from typing import Any

from contracts.adapter import AdapterContract
from doubles import RecordingSink, ScriptedAdapter, ScriptedFactory, complete, fail, piece, start, wait

from iop import model as m
from iop.errors import Failure
from iop.node.adapters.environment import Run


class TestScriptedAdapter(AdapterContract):
    factory = ScriptedFactory()

    def make(self) -> ScriptedAdapter:
        return ScriptedAdapter()

    def begin(self, kind: str) -> tuple[Any, RecordingSink]:
        first, *rest = [piece(each) for each in self.PIECES]
        scripts = {
            "answers": [start(), first, *rest, complete()],
            "refuses": [fail(Failure("upstream_error", "no"))],
            "breaks": [start(), first, fail(Failure("upstream_error", "it broke"))],
            "silent": [wait],
            "garbage": [start(), first, fail(Failure("upstream_error", "what came is nothing"))],
            "goes on": [start(), first, wait],
            "raises": [start(), first, wait],
        }
        self.adapter.script = tuple(scripts[kind])
        sink = self.sink(kind)
        return self.adapter.run(Run(m.RunRequest("r", "a", "t")), sink), sink

    def more(self) -> bytes:
        [run for run in self.adapter.runs if not run.over][-1].say(piece(b"more"))
        return b"more"

    def open(self) -> int:
        return self.adapter.open

    def break_backend(self) -> None:
        self.adapter.health = m.Health.DOWN
