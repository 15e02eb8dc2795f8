"""What an agent's error means: its words, a status in them and the end of its process to one Failure. Pure.

The words may reach a client: one short sentence, without an address, a path, an id or a secret. What is said about
credentials is not repeated at all, since some repeat the credentials.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from signal import Signals
from typing import Any, Final, NamedTuple

from iop.errors import Failure, printable

_READ: Final = 8000  # characters of an error that are looked at
_LONGEST: Final = 300  # characters of it that are shown
_TAIL_LINES: Final = 3

ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI: colours, modes, cursor
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|[PX^_][^\x1b]*\x1b\\"
    r"|[ -/]*[0-~])"
)

_STATUS_OF: Final[Mapping[str, int]] = {
    "429": 429,
    "rate_limit": 429,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "RESOURCE_EXHAUSTED": 429,
    "401": 401,
    "authentication_failed": 401,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "UNAUTHENTICATED": 401,
    "ProviderAuthError": 401,
    "403": 403,
    "permission_error": 403,
    "PERMISSION_DENIED": 403,
}
_TOO_LONG: Final = frozenset({"context_length_exceeded", "exceed_context_size_error", "ContextOverflowError"})
_OVERFLOW: Final = re.compile(
    r"maximum context length|context[_ ]length[_ ]exceeded"
    r"|(?:exceeds?|longer than) (?:the |this )?(?:available |model's )?(?:maximum )?context"
    r"|context (?:size|window) (?:exceeded|of)|ran out of room in the|exceeds the maximum number of tokens"
    r"|(?:prompt|input|request) is too long|prompt too long",
    re.IGNORECASE,
)
_STATUS: Final = re.compile(r"(?:\bstatus(?: code)?:?\s+|\bAPI Error:?\s+|\bHTTP(?:/[\d.]+)?\s+|\()([45]\d\d)\b")
_GONE: Final = re.compile(
    r"no conversation found|session not found|no saved session found|invalid session identifier"
    r"|error resuming session|no rollout found for|does not match any session|requires a valid session id",
    re.IGNORECASE,
)

_WRAPPED: Final = re.compile(r"\[?API Error:\s*(?:\d{3}\s+)?", re.IGNORECASE)
_ASIDE: Final = re.compile(r",? \(?(?:url|request id|cf-ray): [^,\s]+")
_QUOTED_PATH: Final = re.compile(r"""(['"`])(?:file://|~?/|[A-Za-z]:\\)[^'"`]*\1""")
_ADDRESS: Final = re.compile(
    r"\b[a-z][a-z0-9+.-]{0,15}://[^\s'\"<>)]+"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"
    r"|\[[0-9a-f]{0,4}:[0-9a-f:]{1,40}\](?::\d+)?"
    r"|\b(?:localhost|[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,8}):\d{2,5}\b"
    r"|(?<=\bENOTFOUND )\S+|(?<=\bEAI_AGAIN )\S+",
    re.IGNORECASE,
)
_BARE_IPV6: Final = re.compile(r"(?<![\w:.])[0-9a-f]{0,4}:[0-9a-f:]{0,35}:[0-9a-f:.]{0,15}(?![\w:])", re.IGNORECASE)
#: A path from the root, from home or from a drive; `run /login` is an agent's own command.
_PATH: Final = re.compile(
    r"""(?<![\w.:/<-])~?/[^\s'"`<>,;:()/]+/[^\s'"`<>,;:()]*"""
    r"""|(?<![\w.:/<-])(?<!run )~?/[^\s'"`<>,;:()/]+"""
    r"""|\b[A-Za-z]:\\[^\s'"`<>,;:()]*"""
)
_SECRET: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|ghp|gho|github_pat|hf|xox[abp])[-_][\w*-]{4,}|\bAIza[\w-]{10,}|\beyJ[\w-]{10,}[\w.-]*"
    r"|\b(?:bearer|basic)\s+[^\s'\"]+"
    r"|\b(?:api[_-]?key|token|password|passwd|secret|authorization)['\"]?\s*[=:]\s*['\"]?[^\s'\"]+"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b(?=\w*\d)(?=\w*[A-Za-z])\w{24,}",
    re.IGNORECASE,
)
_NO_WORDS: Final = re.compile(r"\s*(?:<|Traceback \(most recent call last\))")

#: Lines of stderr that say nothing about an error: stack frames, warnings, what an agent does with its stdin.
_CHATTER: Final = re.compile(
    r"\s*(?:at\s.*|[{}\[\]\s,;^~|=-]*|warn(?:ing)?\b.*|\[STARTUP\].*|Reading additional input.*)", re.IGNORECASE
)
_BEGINS_ERROR: Final = re.compile(r"\W*(?:fatal|error|panic)\b", re.IGNORECASE)


class Said(NamedTuple):
    """An error as an agent told it: its words, the status it named, its word for the kind of error."""

    words: str = ""
    status: int | None = None
    kind: str = ""


def failure(said: Said, stderr_tail: str = "") -> Failure:
    """Return what an error that an agent told of means; stderr speaks where the agent had no words."""
    words, status, kind = _unwrapped(said)
    shown = sentence(words) or tail(stderr_tail)
    if _GONE.search(words) or (not words and _GONE.search(stderr_tail)):
        return session_gone()
    if kind in _TOO_LONG or _OVERFLOW.search(shown):
        return Failure("context_length_exceeded", shown or "the conversation is longer than the model's context")
    if status in (401, 403):  # not the client's: a 401 would tell it that its own key is wrong
        return Failure("upstream_error", "the agent's backend refused its credentials")
    if status == 429:  # no other provider gets the run: the agent may have done half of it
        return Failure("rate_limited", _with("the agent reached a rate limit", shown), retryable=False)
    return Failure("upstream_error", _with("the agent failed", shown))


def ended(said: Said, exit_status: int | None, signal: int | None, stderr_tail: str) -> Failure:
    """Return what the end of a child that told no result means.

    :param said: the last thing it told that may be the reason, a retry say.
    """
    if signal is not None:
        return Failure("upstream_error", f"the agent was killed by {signal_name(signal)}")
    if said.words or said.status is not None:
        return failure(said, stderr_tail)
    return without_result("the agent ended without a result", exit_status, stderr_tail)


def without_result(what: str, exit_status: int | None, stderr_tail: str) -> Failure:
    """Return the failure of a child that ended with nothing but its exit status and its stderr to tell why."""
    if _GONE.search(stderr_tail):
        return session_gone()
    shown = tail(stderr_tail)
    told = failure(Said(shown))  # for the sake of a status in it
    if told.code != "upstream_error":
        return told
    return Failure(
        "upstream_error", _with(what if exit_status is None else f"{what} (exit status {exit_status})", shown)
    )


def session_gone() -> Failure:
    """Return the failure of a session that the agent does not know."""
    return Failure("session_gone", "the agent no longer knows this session")


def signal_name(number: int) -> str:
    """Return ``SIGKILL`` for 9, and something for a number without a name."""
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


_FRAME: Final = re.compile(r'\s+File "[^"]*", line \d+')
"""A line of a traceback of Python."""


def tail(stderr: str) -> str:
    """Return the end of a stderr as a sentence: from its last line that begins as an error, if one does."""
    lines = [line for line in ESCAPES.sub("", stderr[-_READ:]).splitlines() if not _CHATTER.fullmatch(line)]
    frames = [index for index, line in enumerate(lines) if _FRAME.match(line)]
    if frames:  # a traceback is nobody's business; what it ends with is
        lines = [line for line in lines[frames[-1] + 1 :] if not line.startswith((" ", "\t"))]
    errors = [index for index, line in enumerate(lines) if _BEGINS_ERROR.match(line)]
    begin = errors[-1] if errors else max(0, len(lines) - _TAIL_LINES)
    return sentence("; ".join(line.strip() for line in lines[begin : begin + _TAIL_LINES]))


def sentence(words: str) -> str:
    """Return somebody's words, fit for a client; "" where they are a page or a traceback."""
    if _NO_WORDS.match(words):
        return ""
    words = " ".join(ESCAPES.sub("", words[:_READ]).split())[: 4 * _LONGEST]
    words = _QUOTED_PATH.sub("[path]", _ASIDE.sub("", words))
    words = _BARE_IPV6.sub(_address, _ADDRESS.sub("[address]", words))
    words = _SECRET.sub("[hidden]", _PATH.sub("[path]", words))
    if len(words) > _LONGEST:
        end = words.rfind(" ", _LONGEST // 2, _LONGEST)
        words = words[: end if end > 0 else _LONGEST].rstrip(" .,;:") + "…"
    return printable(words)


def _with(what: str, words: str) -> str:
    return f"{what}: {words}" if words else what


def _address(match: re.Match[str]) -> str:
    """Hide an IPv6 address, leave a time of day."""
    try:
        ipaddress.ip_address(match[0])
    except ValueError:
        return match[0]
    return "[address]"


def _unwrapped(said: Said) -> Said:
    """Take an error out of what it was told in: ``[API Error: {"error": {"code": 400, "message": …}}]``."""
    words, status, kind = said
    words = words[:_READ]
    for _ in range(4):
        inner = _inner(words)
        if inner is None:
            break
        words, status, kind = inner.words, status or inner.status or _status_in(words), inner.kind or kind
    status = status or _status_in(words) or _STATUS_OF.get(kind)
    wrapping = _WRAPPED.match(words)
    if wrapping:
        words = words[wrapping.end() :]
        words = words.strip().removesuffix("]") if wrapping[0].startswith("[") else words
    return Said(words.strip(), status, kind)


def _status_in(words: str) -> int | None:
    found = _STATUS.search(words)
    return int(found[1]) if found else None


def _inner(words: str) -> Said | None:
    """Return the error object that stands in somebody's words."""
    begin = words.find("{")
    if begin < 0:
        return None
    try:
        document, _ = json.JSONDecoder(strict=False).raw_decode(words, begin)
    except (ValueError, RecursionError):
        return None
    found = object_of(document)
    return found if found.words else None


def object_of(document: Any) -> Said:
    """Return what an error of any of the usual shapes says."""
    if isinstance(document, dict) and document.get("error"):
        document = document["error"]
    if isinstance(document, str):
        return Said(document)
    if not isinstance(document, dict):
        return Said()
    message = document.get("message") or document.get("detail")
    words = [word for key in ("code", "type", "status", "name") if isinstance(word := document.get(key), str)]
    numbers = [number for key in ("code", "status", "statusCode") if is_status(number := document.get(key))]
    kinds = [word for word in words if word in _STATUS_OF or word in _TOO_LONG] or words
    return Said(message if isinstance(message, str) else "", (*numbers, None)[0], (*kinds, "")[0])


def is_status(value: Any) -> bool:
    """Whether it is the HTTP status of an error."""
    return isinstance(value, int) and 400 <= value <= 599
