"""What a surface wants run, and where it wants the answer: the seam between surfaces and runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from iop import model as m
from iop.edge.config import model as config
from iop.errors import Failure


def _unserved() -> Failure:
    return Failure("unknown_url", "no provider of the model serves this")


class Ask(NamedTuple):
    """What a surface wants run.

    :ivar api: the API it is a request of, as a provider has it (``iop.edge.pool.admission.Resource.native``).
    :ivar operation: as what it is counted (:class:`iop.edge.record.Record`).
    :ivar native: makes the body for a backend that has this API, by target: which one is known only after admission.
    :ivar http: what such a backend is asked.
    :ivar chat: makes the same question as a chat request, for a provider that has not, or answers by events; None where
        there is no such question.
    :ivar thinking: how much it is to think; asked at each dispatch, like ``native`` and ``chat``.
    :ivar translated: whether it goes as a chat request, even where the API is; asked likewise.
    :ivar unserved: why it cannot be run where no provider of the model has the API, and there is no such question.
    :ivar request_id: by which the client knows its request; for the log.
    :ivar tokens: of the input, estimated.
    :ivar longest: of its longest part, where it is several that the model reads one by one: what must fit its window.
    :ivar session_id: of the conversation with an agent that goes on; its principal's alone. "" for none.
    :ivar workspace: the directory that an agent works in; "" for none.
    :ivar trace: the client's ``traceparent`` and ``tracestate``, for a run without HTTP.
    """

    model: str
    native: Callable[[str], bytes]
    http: m.HttpRequestHead
    chat: Callable[[str], bytes] | None = None
    api: str = "chat"
    operation: str = "chat"
    unserved: Callable[[], Failure] = _unserved
    principal: config.PrincipalToken | None = None
    stream: bool = False
    secret_headers: m.Headers = ()
    metadata: Mapping[str, str] = {}
    request_id: str = ""
    tokens: int = 0
    longest: int | None = None
    thinking: Callable[[], m.Thinking] = lambda: m.UNSET
    translated: Callable[[], bool] = lambda: False
    session_id: str = ""
    workspace: str = ""
    trace: Mapping[str, str] = {}

    def as_chat(self, target: str) -> bytes:
        """Return the question as a chat request; :raises Failure: when it is none."""
        if self.chat is None:
            raise self.unserved()
        return self.chat(target)


class Answer(Protocol):
    """Where a run's answer goes. After ``completed``, ``whole`` or ``failed`` nothing more comes.

    :ivar status: the HTTP status that the client has, 0 while it has none.
    """

    status: int

    @property
    def called(self) -> bool:
        """Whether tools were called, as far as the answer was put together out of events."""

    def waits(self) -> None:
        """No slot is free: the run waits for one."""

    def sent(self) -> None:
        """The wait is over: the run went to a provider."""

    def again(self) -> bool:
        """What came is worth nothing, another provider is asked: whether the client has not had a byte of it."""

    def started(self, start: m.Start) -> None:
        """The answer begins."""

    def delta(self, delta: m.Delta) -> None:
        """A piece came; :meth:`Run.taken` says when it has left the edge."""

    def completed(self, complete: m.Complete) -> None:
        """The answer is whole; :raises Failure: for one that the client cannot be given, which is then told."""

    def whole(self, whole: m.Whole) -> None:
        """The answer came whole, at once: nothing came before; :raises Failure: as :meth:`completed`."""

    def failed(self, failure: Failure, usage: m.Usage | None) -> None:
        """The run failed."""
