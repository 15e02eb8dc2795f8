"""What a process logs: from which level on, and as lines for people or as one JSON object a line.

``docs/contracts/config.md`` (Logging). In either form the value of a field that is named like a secret is ``***``.
"""

from __future__ import annotations

import json
import math
import re
import signal
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import IO, Any, Final

from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogFilterPredicate,
    LegacyLogObserverWrapper,
    LogEvent,
    LogLevel,
    PredicateResult,
    formatEvent,
    formatEventAsClassicLogText,
    formatTime,
)
from twisted.python.logfile import LogFile
from zope.interface import implementer

HIDDEN: Final = "***"

_SECRET: Final = re.compile(
    r"(^|[_-])(authorization|cookies?|passw(or)?d|secrets?|api[_-]?keys?|private[_-]?key)([_-]|$)"
    r"|(^|[_-])token([_-]hash.*)?$",
    re.IGNORECASE,
)

_SIMPLE: Final = frozenset({str, int, bool, float, type(None)})

_RESERVED: Final = frozenset({"ts", "level", "ns", "msg", "exc"})

_LEGACY: Final = frozenset({"message", "time", "system", "format", "failure", "isError", "logLevel"})
"""What an observer of Twisted's older log writes into the events of the newer one."""


# ---- one event ------------------------------------------------------------------------------------------------------


@lru_cache(1024)
def is_secret(name: str) -> bool:
    """Whether what has this name is not for a log; ``token_ref`` and ``input_tokens`` are."""
    return _SECRET.search(name) is not None


def redacted(event: Mapping[Any, Any]) -> Any:
    """Return the event without its secrets; itself, if it has none."""
    changed: dict[Any, Any] = {}
    for name, value in event.items():
        if isinstance(name, str) and is_secret(name):
            changed[name] = HIDDEN
        elif type(value) not in _SIMPLE and isinstance(value, Mapping):
            inner = redacted(value)
            if inner is not value:
                changed[name] = inner
    return {**event, **changed} if changed else event


def json_line(event: LogEvent) -> str:
    """Return an event as one line: its time, level and namespace, its message, its fields, its traceback as a string.

    Whatever the fields are, it is ASCII, one line, and JSON. An event with ``log_fields`` has no others; whoever made
    it answers for what is in them.
    """
    if "log_fields" in event:
        head = {"ts": _time(event["log_time"]), "level": event["log_level"].name, "ns": event["log_namespace"]}
        return json.dumps({**head, "msg": event["log_text"], **event["log_fields"]}) + "\n"
    event = redacted(event)
    failure = event.get("log_failure")
    level = event.get("log_level")
    line: dict[str, Any] = {
        "ts": _time(event.get("log_time")),
        "level": "info" if level is None else level.name,
        "ns": str(event.get("log_namespace", "")),
        "msg": formatEvent(event),
    }
    if line["ns"] != "log_legacy":
        line |= {name: value for name, value in event.items() if _is_field(name)}
        if failure is not None and "isError" in event:
            line.pop("why", None)  # an older observer's
    if failure is not None:
        line["exc"] = failure.getTraceback().rstrip("\n")
    try:
        return json.dumps(line, default=_shown, allow_nan=False) + "\n"
    except (ValueError, TypeError, RecursionError):  # a number that JSON lacks, a key that is none, a knot
        return json.dumps({name: value if _is_plain(value) else _shown(value) for name, value in line.items()}) + "\n"


def text_line(event: LogEvent) -> str | None:
    """Return an event as ``twistd`` writes it; None for one without a word."""
    if "log_fields" in event:  # one for each request: it must be cheap
        head = f"{_second(int(event['log_time']))} [{event['log_namespace']}#{event['log_level'].name}] "
        return f"{head}{event['log_text']}\n"
    return formatEventAsClassicLogText(redacted(event))


@lru_cache(2)
def _second(time: int) -> str:
    return formatTime(time)


def _is_field(name: str) -> bool:
    """Whether the one who logged gave it, to be told by its name."""
    return not name.startswith("log_") and name not in _RESERVED and name not in _LEGACY


def _time(seconds: Any) -> str:
    then = datetime.fromtimestamp(seconds or 0.0, UTC)
    return then.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def _shown(value: Any) -> str:
    """Something that JSON does not know, in words."""
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


# ---- observers ------------------------------------------------------------------------------------------------------


def observer(file: IO[Any], level: str, format: str) -> FilteringLogObserver:
    """Return what writes events to a file.

    :param level: the least that is written: a name of :class:`~twisted.logger.LogLevel`.
    :param format: ``text`` or ``json``.
    """
    return _from(level, FileLogObserver(file, json_line if format == "json" else text_line))


def _from(level: str, write: Any) -> FilteringLogObserver:
    return FilteringLogObserver(write, [_AtLeast(level)])


@implementer(ILogFilterPredicate)
class _AtLeast:
    """Lets pass what matters so much: Twisted's own predicate looks for a level of each part of a namespace first."""

    def __init__(self, level: str) -> None:
        levels = list(LogLevel.iterconstants())
        self._passing = frozenset(levels[levels.index(LogLevel.levelWithName(level)) :])

    def __call__(self, event: LogEvent) -> Any:
        return PredicateResult.maybe if event.get("log_level") in self._passing else PredicateResult.no


def of_twistd(options: Mapping[str, Any], level: str, format: str) -> FilteringLogObserver:
    """Return what writes events where ``twistd``'s options say: to a file, to syslog, or to stdout.

    twistd's own logger decides where and how in one piece. It leaves both to an :class:`ILogObserver` that its
    application has, unless its command line names a ``--logger``.
    """
    if options.get("syslog"):
        return _from(level, _syslog(options.get("prefix") or "", format))
    name = options.get("logfile") or ("-" if options.get("nodaemon") else "twistd.log")
    if name == "-":
        if not options.get("nodaemon"):
            sys.exit("Daemons cannot log to stdout, exiting!")
        return observer(sys.stdout, level, format)
    file: Any = LogFile.fromFullPath(name)
    if not signal.getsignal(signal.SIGUSR1):
        signal.signal(signal.SIGUSR1, lambda *_: _rotate(file))
    return observer(file, level, format)


def _rotate(file: LogFile) -> None:
    from twisted.internet import reactor

    reactor.callFromThread(file.rotate)  # type: ignore[attr-defined]


def _syslog(prefix: str, format: str) -> Callable[[LogEvent], None]:
    import syslog

    from twisted.python.syslog import SyslogObserver

    to = SyslogObserver(prefix)
    if format == "text":
        text = LegacyLogObserverWrapper(to.emit)  # type: ignore[arg-type]
        return lambda event: text(redacted(event))
    priorities = {
        "debug": syslog.LOG_DEBUG,
        "info": syslog.LOG_INFO,
        "warn": syslog.LOG_WARNING,
        "error": syslog.LOG_ERR,
        "critical": syslog.LOG_ALERT,
    }

    def emit(event: LogEvent) -> None:
        level = event.get("log_level")
        priority = syslog.LOG_INFO if level is None else priorities[level.name]
        to.syslog(priority, json_line(event).rstrip("\n"))

    return emit
