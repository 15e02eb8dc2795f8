"""What every API of the surface has: a request that is read, and the shape of its answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from iop import model as m
from iop.document import Document
from iop.errors import Failure


class Building(Protocol):
    """A normalized run's events on their way to being one API's answer, streamed or whole."""

    @property
    def called(self) -> bool:
        """Whether tools were called."""

    def started(self, start: m.Start) -> None:
        """The answer begins."""

    def delta(self, delta: m.Delta) -> bytes:
        """Return what a piece adds to the answer now; nothing while it is held back, or for a whole document.

        :raises Failure: ``answer_too_large``.
        """

    def completed(self, complete: m.Complete) -> bytes:
        """Return the rest of the answer; :raises Failure: for an adapter's nonsense."""


@runtime_checkable
class Streaming(Building, Protocol):
    """One whose stream says in a way of its own that it broke; all others say it as :meth:`Request.broken` does."""

    def failed(self, failure: Failure) -> bytes:
        """Return how the stream ends that broke: it must not look whole."""


class Request(Protocol):
    """What a client asks of one API.

    :ivar document: the body, as it came.
    :ivar model: the model's name, never empty.
    :ivar stream: whether the client wants events.
    """

    @property
    def body(self) -> bytes: ...

    @property
    def document(self) -> Document: ...

    @property
    def model(self) -> str: ...

    @property
    def stream(self) -> bool: ...

    def native(self, target: str, changes: Mapping[str, str]) -> bytes:
        """Return the body for a backend that has this API.

        :param target: the backend's own name for the model.
        :param changes: members that the model's policy sets, as JSON texts.
        """

    def error(self, failure: Failure, request_id: str) -> dict[str, Any]:
        """Return the document of a failure."""

    def broken(self, failure: Failure, request_id: str) -> bytes:
        """Return the last event of a backend's own stream that broke."""


class Chattable(Protocol):
    """One that a provider can answer that does not have its API."""

    @property
    def model(self) -> str: ...

    def chat(self) -> dict[str, Any]:
        """Return the same question as a chat request, ``stream`` left out; :raises Failure: where that cannot be."""
