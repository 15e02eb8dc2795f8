"""What every long-running IOP process does about signals, and about not being able to start."""

from __future__ import annotations

import atexit
import gc
import os
import signal
from collections.abc import Callable
from typing import Any

from twisted.logger import Logger
from twisted.python.failure import Failure as TwistedFailure

from iop.errors import Failure
from iop.sockets import CannotListen

_log = Logger()


def stop_on_signals(reactor: Any, hurry: Callable[[], None]) -> None:
    """Stop on SIGTERM or SIGINT, letting services drain; a second one calls ``hurry``.

    Twisted's own handlers turn the second one into a traceback.
    """
    asked = False

    def stop() -> None:
        nonlocal asked
        if asked:
            hurry()
        elif reactor.running:
            asked = True
            reactor.stop()

    def install() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: reactor.callFromThread(stop))

    if reactor.running:
        install()
    else:
        reactor.addSystemEventTrigger("after", "startup", install)


def reload_on_hangup(reactor: Any, reload: Callable[[], None]) -> None:
    """Call ``reload`` on SIGHUP, which ends a process that says nothing about it."""
    signal.signal(signal.SIGHUP, lambda *_: reactor.callFromThread(reload))


def settle(reactor: Any) -> None:
    """Tell the garbage collector that what is loaded now stays: less to look at while serving.

    Requests leave no reference cycles behind, so collections can be rare.
    """

    def freeze() -> None:
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)

    reactor.callWhenRunning(freeze)


def _stop(reactor: Any) -> None:
    if reactor.running:
        reactor.stop()


def fatal(error: BaseException) -> None:
    """A service could not start: say why in a sentence, stop, and exit with status 1."""
    from twisted.internet import reactor

    if isinstance(error, CannotListen | Failure):
        _log.critical("{error}", error=str(error))
    else:
        _log.failure("could not start", failure=TwistedFailure(error))
    atexit.register(os._exit, 1)
    reactor.callWhenRunning(_stop, reactor)  # twistd starts services before the reactor runs
