"""Coding agents, and any program, as children of the node. ``docs/contracts/adapters.md`` (cli)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList, fail, succeed
from zope.interface import implementer, provider

from iop import model as m
from iop.errors import Failure
from iop.interfaces import MOST_SESSIONS, IAdapter, IAdapterFactory
from iop.node.adapters.cli.child import Child
from iop.node.adapters.cli.formats import parser
from iop.node.adapters.cli.processes import Processes
from iop.node.adapters.cli.prompt import render
from iop.node.adapters.environment import Environment, Run
from iop.settings import CLI_SETTINGS, chosen

INHERITED: Final = ("PATH", "HOME", "LANG", "TMPDIR", "TERM")
"""What a child gets of the node's own environment, with every ``LC_`` variable: nothing that could be a secret."""

LONGEST_ARGUMENT: Final = 128 * 1024 - 1
"""Bytes of one argument, execve(2)."""


@implementer(IAdapter)
class CLIAdapter:
    """One program.

    :param processes: starts and ends children.
    :param environ: of the node.
    """

    def __init__(
        self, settings: Mapping[str, Any], environment: Environment, processes: Processes, environ: Mapping[str, str]
    ) -> None:
        setting = partial(chosen, settings, CLI_SETTINGS)
        self._environment = environment
        self._processes = processes
        self._command = str(settings["command"])
        self._args = tuple(setting("args"))
        self._resume_args = tuple(setting("resume_args"))
        self._format = setting("output_format")
        self._fields = setting("fields")
        self._keeps_sessions = setting("mode") == "session"
        self._on_stdin = setting("prompt") == "stdin"
        self._patience = setting("request_timeout_ms") / 1000
        self._grace = setting("grace_ms") / 1000
        inherited = {k: v for k, v in environ.items() if k in INHERITED or k.startswith("LC_")}
        self._environ = {**inherited, **setting("env")}
        self._children: dict[Child, str] = {}

    # ---- IAdapter -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Remove the directories of runs that a node before this one left, and of sessions that are gone."""
        store = self._environment.sessions
        known = store.known(self._name) if self._keeps_sessions and store is not None else []
        kept = {self._scratch_of(each.session_id).name for each in known if each.state == "active"}
        for path in (self._environment.state_dir / "scratch").glob("*-*"):
            if path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)

    def stop(self) -> Deferred[Any]:
        children = list(self._children)
        for child in children:
            child.give_up(Failure("upstream_error", "the node is stopping"))
        return DeferredList([child.ended() for child in children])

    def run(self, run: Run, sink: Any) -> Deferred[None]:
        request = run.request
        session = self._session(request.session_id)
        resumed = session is not None and session.agent_session != ""
        workspace = self._workspace(request, session)
        prompt = render(_document(request.input), whole=session is None)
        words = [self._command, *self._args]
        if session is not None:
            words += [word.replace("{session}", session.agent_session) for word in self._resume_args]
        told = prompt.encode("utf-8", "replace")
        if not self._on_stdin:
            words += ["--", _argument(told)]
            told = b""
        program = self._program()
        scratch = None if workspace else self._scratch(request.session_id)

        def named(agent_session: str) -> None:
            self._keep(request.session_id, agent_session, workspace)

        child = Child(
            sink,
            parser(self._format, self._fields),
            told,
            named if request.session_id else lambda _: None,
            self._environment.reactor,
            self._environment.log,
            self._grace,
            self._patience,
            session.agent_session if resumed and session is not None else "",
        )
        self._children[child] = request.session_id
        sink.attach(child)
        try:
            started = self._processes.start(child, program, words, self._environ, workspace or str(scratch))
        except OSError as error:
            del self._children[child]
            raise Failure("adapter_unavailable", f"the agent cannot be started: {error.strerror}") from None
        child.runs(self._processes, started)
        own = None if request.session_id else scratch
        ended = child.ended().addCallback(lambda _: self._over(child, request.session_id, workspace, own))
        ended.addErrback(partial(self._environment.log.failure, "what a run left could not be put in order"))
        return child.done

    def probe(self, path: str = "") -> Deferred[m.Health]:
        try:
            self._program()
        except Failure as failure:
            return fail(failure)
        return succeed(m.Health.UP)

    def models(self) -> Deferred[list[str]]:
        return succeed([os.path.basename(self._command)])

    def sessions(self) -> list[Mapping[str, Any]]:
        if not self._keeps_sessions:
            return []
        busy = set(self._children.values())
        return [
            {
                "session_id": each.session_id,
                "adapter": self._name,
                "agent_session": each.agent_session,
                "workspace": each.workspace,
                "created": each.created,
                "last_used": each.last_used,
                "state": "busy" if each.session_id in busy else each.state,
            }
            for each in self._environment.sessions.known(self._name, MOST_SESSIONS + 1)
        ]

    def terminate_session(self, session_id: str) -> Deferred[bool]:
        if not self._keeps_sessions:
            return succeed(False)
        sessions = self._environment.sessions
        running = [child for child, of in self._children.items() if of and of == session_id]
        if running and sessions.find(self._name, session_id) is None:
            self._keep(session_id, "", "")  # its agent has not named itself yet: it was there all the same
        found = sessions.terminate(self._name, session_id)
        for child in running:
            child.give_up(Failure("session_gone", "the session was terminated"))

        def ended(_: Any) -> bool:
            shutil.rmtree(self._scratch_of(session_id), ignore_errors=True)
            return bool(found or running)

        return DeferredList([child.ended() for child in running]).addCallback(ended)

    # ---- a run's surroundings -----------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return self._environment.name

    def _session(self, session_id: str) -> Any:
        """Return what is known of the session a run goes on in; None for a new one, or none."""
        if not session_id:
            return None
        if not self._keeps_sessions:
            raise Failure("invalid_value", "this provider keeps no sessions", param="metadata.session_id")
        if session_id in self._children.values():
            raise Failure("session_busy", "another run of this session is under way")
        session = self._environment.sessions.find(self._name, session_id)
        if session is not None and session.state != "active":
            raise Failure("session_gone", f"the session is {session.state}; begin a new one under another id")
        return session

    def _workspace(self, request: m.RunRequest, session: Any) -> str:
        """Return the directory to work in; "" for one of the run's own. A session stays where it began."""
        if session is None or (not session.workspace and not request.workspace):
            return request.workspace
        if request.workspace not in ("", session.workspace):
            where = session.workspace or "a directory of its own"
            message = f"the session works in {where}, not in {request.workspace}"
            raise Failure("workspace_invalid", message, param="metadata.workspace")
        return self._environment.workspace(session.workspace)  # it may have become something else meanwhile

    def _scratch(self, session_id: str) -> Path:
        folder = self._environment.state_dir / "scratch"
        made = self._scratch_of(session_id)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not session_id:
                return Path(tempfile.mkdtemp(prefix="run-", dir=folder))
            made.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            message = f"the node has no directory for the agent to work in: {error.strerror}"
            raise Failure("adapter_unavailable", message) from None
        return made

    def _scratch_of(self, session_id: str) -> Path:
        name = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self._environment.state_dir / "scratch" / f"session-{name}"

    def _program(self) -> str:
        """Return where the command is, seen from the node: the agent works in a directory that others write to.

        :raises Failure: which says why it cannot be run.
        """
        found = shutil.which(self._command, path=self._environ.get("PATH", os.defpath))
        if found is not None:
            return os.path.join(os.getcwd(), found)
        if "/" not in self._command:
            raise Failure("adapter_unavailable", f"the program {self._command} is not in the PATH of the node")
        if os.path.isfile(self._command):
            raise Failure("adapter_unavailable", f"the program {self._command} may not be executed")
        raise Failure("adapter_unavailable", f"there is no program {self._command} on the node")

    def _keep(self, session_id: str, agent_session: str, workspace: str) -> None:
        self._environment.sessions.keep(self._name, session_id, agent_session, workspace)

    def _over(self, child: Child, session_id: str, workspace: str, scratch: Path | None) -> None:
        del self._children[child]
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        if session_id and child.answered and not child.session:
            if any("{session}" in word for word in self._resume_args):
                self._environment.log.warn(
                    "{name}: the agent did not name its session; it cannot go on", name=self._name
                )
            else:
                self._keep(session_id, "", workspace)
        if session_id and not child.answered and self._environment.sessions.find(self._name, session_id) is None:
            shutil.rmtree(self._scratch_of(session_id), ignore_errors=True)


def _checked(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings that can work together; :raises Failure:."""
    resumes = any("{session}" in word for word in settings.get("resume_args") or ())
    if settings.get("output_format") == "jsonl" and "text" not in (settings.get("fields") or {}):
        raise Failure("invalid_value", "fields.text is needed: it says where the text of a jsonl line stands")
    if settings.get("mode") == "session" and not settings.get("resume_args"):
        raise Failure("invalid_value", "resume_args are needed: they say how the program goes on in a session")
    if resumes and settings.get("output_format", "text") == "text":
        raise Failure("invalid_value", "resume_args: a program whose output_format is text names no {session}")
    return settings


def _document(body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise Failure("invalid_json", "the request is no JSON object")
    if document.get("n") not in (None, 1):
        raise Failure("invalid_value", "this provider gives one answer to a request", param="n")
    return document


def _argument(prompt: bytes) -> bytes:
    if b"\0" in prompt:
        raise Failure("invalid_value", "a prompt for this provider may not hold NUL", param="messages")
    if len(prompt) > LONGEST_ARGUMENT:
        raise Failure(
            "invalid_value", f"a prompt for this provider may be up to {LONGEST_ARGUMENT} bytes long", param="messages"
        )
    return prompt


@provider(IAdapterFactory)
class factory:
    """Finds itself by ``type: cli``."""

    name = "cli"
    title = "Coding agents and other programs, as child processes"
    settings_schema = CLI_SETTINGS
    capabilities: Mapping[str, Any] = {
        "modes": {m.Mode.NORMALIZED},
        "endpoints": ("/v1/chat/completions",),
        "sessions": True,
        "embeddings": False,
    }

    @staticmethod
    def make(settings: Mapping[str, Any], environment: Environment) -> CLIAdapter:
        """Return an adapter; :raises Failure: for settings that cannot work together."""
        processes = Processes(environment.reactor, environment.state_dir / "children")
        return CLIAdapter(_checked(settings), environment, processes, os.environ)
