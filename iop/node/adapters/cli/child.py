"""One child and its run: the prompt in, lines out, and every way in which it may end."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure as TwistedFailure

from iop import model as m
from iop.errors import Failure
from iop.node.adapters.cli.formats import Parser, Piece
from iop.node.adapters.cli.processes import Processes, Started

LONGEST_LINE: Final = 8 << 20
TAIL: Final = 4 << 10
"""Bytes of stderr that are kept, the last ones."""

LAUNCH: Final = 0.01
"""Seconds after which a child that led no group yet, so that nobody heard a signal, is signalled again."""


class Child(ProcessProtocol):
    """A program that answers one run; also the source that flow control pauses.

    :param named: is told the agent's own session id when it is known; raises a Failure for a wrong one.
    :param grace: seconds between SIGINT and SIGKILL.
    :param resumed: the agent's own name of the conversation that it is asked to go on in; "" for a new one.
    :param patience: seconds that the whole may take; 0 is without end.
    :ivar done: fires when nothing of the child is left; cancelling it ends the child.
    :ivar session: the agent's own name of the conversation; "" while it has not said one.
    :ivar answered: whether the answer was whole.
    """

    def __init__(
        self,
        sink: Any,
        parser: Parser,
        prompt: bytes,
        named: Callable[[str], None],
        clock: IReactorTime,
        log: Logger,
        grace: float,
        patience: float,
        resumed: str = "",
    ) -> None:
        self._sink = sink
        self._parser = parser
        self._prompt = prompt
        self._named = named
        self.session = ""
        self.answered = False
        self._clock = clock
        self._log = log
        self._grace = grace
        self._patience = patience
        self._resumed = resumed
        self._line = bytearray()
        self._stderr = b""
        self._started = self._gone = self._cancelled = self._paused = False
        self._failure: Failure | None = None
        self._status: tuple[int | None, int | None] = (None, None)
        self._timers: dict[str, IDelayedCall] = {}
        self._processes: Processes | None = None
        self._child: Started | None = None
        self._over = False
        self._waiting: list[Deferred[None]] = []
        self.done: Deferred[None] = Deferred(lambda _: self._cancel())
        self.done.addErrback(lambda _: self.ended())  # cancelled, but not before it has ended

    def runs(self, processes: Processes, child: Started) -> None:
        """It was started."""
        self._processes, self._child = processes, child
        if self._patience:
            self._later("patience", self._patience, self._too_long)
        if self._failure is not None or self._cancelled:
            self._interrupt()

    def ended(self) -> Deferred[None]:
        """Return a Deferred that fires when nothing of it is left."""
        waiting: Deferred[None] = Deferred()
        if self._over:
            waiting.callback(None)
        else:
            self._waiting.append(waiting)
        return waiting

    def give_up(self, failure: Failure) -> None:
        """End the child, and its run with a failure."""
        self._fail(failure)

    # ---- flow control -------------------------------------------------------------------------------------------

    @property
    def usage(self) -> m.Usage | None:
        """What the program has counted until now."""
        return self._parser.usage

    def pause(self) -> None:
        """Read nothing more of its stdout; a full pipe stops the child."""
        self._paused = True
        self._stdout("pauseProducing")

    def resume(self) -> None:
        """Read on."""
        self._paused = False
        self._stdout("resumeProducing")

    def _stdout(self, verb: str) -> None:
        pipe = getattr(self.transport, "pipes", {}).get(1)
        if pipe is not None:
            getattr(pipe, verb)()

    # ---- ProcessProtocol ----------------------------------------------------------------------------------------

    def connectionMade(self) -> None:
        assert self.transport is not None
        if self._paused:  # before there was anything to pause
            self._stdout("pauseProducing")
        if self._prompt:
            self.transport.write(self._prompt)
        self.transport.closeStdin()

    def outReceived(self, data: bytes) -> None:
        if self._failure is not None or self._cancelled:
            return
        self._line += data
        if b"\n" in data:
            *lines, rest = bytes(self._line).split(b"\n")
            self._line = bytearray(rest)
            for line in lines:
                self._read(line)
                if self._failure is not None or self._cancelled:
                    return
        if len(self._line) > LONGEST_LINE:
            self._fail(Failure("upstream_error", f"the agent wrote a line longer than {LONGEST_LINE >> 20} MiB"))

    def errReceived(self, data: bytes) -> None:
        self._stderr = (self._stderr + data)[-TAIL:]

    def processExited(self, reason: TwistedFailure) -> None:
        value: Any = reason.value
        self._gone = True
        self._status = (value.exitCode, value.signal)
        self._stop("grace")
        self._stop("again")
        self._sweep()
        if self._processes is not None and self._child is not None:  # whoever else holds its pipes is not waited for
            said, complained = self._processes.rest(self._child)
            self.outReceived(said)
            self.errReceived(complained)
            assert self.transport is not None
            self.transport.loseConnection()
        self._finish()

    def processEnded(self, reason: TwistedFailure) -> None:
        """Its pipes are closed too."""
        if not self._gone:
            self.processExited(reason)

    # ---- what it says -------------------------------------------------------------------------------------------

    def _read(self, line: bytes) -> None:
        try:
            self._heard(line)
        except Failure as failure:
            self._fail(failure)
        except Exception:  # a line that nobody thought of ends this run and no other
            self._log.failure("a line of the agent could not be read")
            self._fail(Failure("internal", "what the agent wrote could not be read"))

    def _heard(self, line: bytes) -> None:
        piece = self._parser.line(line)
        if self._parser.session and self._parser.session != self.session:
            self.session = self._parser.session
            if self._resumed and self.session != self._resumed:
                raise Failure("session_gone", "the agent went on in another conversation than it was asked to")
            self._named(self.session)
        self._say(piece)

    def _say(self, piece: Piece | None) -> None:
        if piece is not None and (piece.text or piece.reasoning):
            self._start()
            self._sink.delta(text=piece.text, reasoning=piece.reasoning)

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._sink.start()

    def _finish(self) -> None:
        if self._over:
            return
        self._over = True
        for name in list(self._timers):
            self._stop(name)
        if self._processes is not None and self._child is not None:
            self._processes.forget(self._child)
        if not self._cancelled:
            try:
                self._tell_end()
            except Exception:  # whatever it was, it must not hold its session
                self._log.failure("the end of an agent could not be told")
                self._sink.fail(Failure("internal", "what the agent wrote could not be read"), None)
        if self._parser.noise:
            self._log.debug("{count} lines of an agent were noise", count=self._parser.noise)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)
        if not self._cancelled:
            self.done.callback(None)

    def _tell_end(self) -> None:
        if self._failure is None and self._line:
            self._read(bytes(self._line))  # a last line without its end is one
        end: Piece | Failure | None = self._failure
        if end is None:
            end = self._parser.end(*self._status, self._stderr.decode("utf-8", "replace"))
        if not isinstance(end, Failure) and self._resumed and not self.session:
            end = Failure("session_gone", "the agent did not say that it went on in the conversation it was asked to")
        if isinstance(end, Failure):
            self._sink.fail(end, self._parser.usage)
            return
        self._say(end)
        self._start()
        self.answered = True
        self._sink.complete("stop", self._parser.usage)

    # ---- ending it ----------------------------------------------------------------------------------------------

    def _cancel(self) -> None:
        self._cancelled = True
        self._interrupt()

    def _fail(self, failure: Failure) -> None:
        """The run has failed; its end is told when the child has ended."""
        if self._failure is None:
            self._failure = failure
            self._interrupt()

    def _too_long(self) -> None:
        self._fail(Failure("upstream_timeout", "the agent took longer than it may"))

    def _interrupt(self) -> None:
        """SIGINT to its group, SIGKILL to all of it after the grace time."""
        if self._child is None or self._processes is None or self._gone:
            return
        self._stdout("resumeProducing")  # a child that waits on a full pipe must be able to end
        if "grace" not in self._timers:
            self._later("grace", self._grace, self._kill)
            self._ask_to_end()

    def _ask_to_end(self) -> None:
        assert self._processes is not None
        assert self._child is not None
        if not self._processes.signal(self._child, signal.SIGINT):
            self._later("again", LAUNCH, self._ask_to_end)

    def _kill(self) -> None:
        assert self._processes is not None
        assert self._child is not None
        self._stop("again")
        self._processes.kill(self._child)

    def _sweep(self) -> None:
        if self._processes is not None and self._child is not None:
            self._processes.sweep(self._child)

    # ---- time ---------------------------------------------------------------------------------------------------

    def _later(self, name: str, seconds: float, what: Callable[[], None]) -> None:
        self._stop(name)
        self._timers[name] = self._clock.callLater(seconds, self._due, name, what)

    def _due(self, name: str, what: Callable[[], None]) -> None:
        del self._timers[name]
        what()

    def _stop(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
