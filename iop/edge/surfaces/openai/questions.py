"""What each API's request asks to be run: read from a body. Pure. ``docs/contracts/openai.md`` (Endpoints).

What its model's policy adds is asked for when a run is dispatched: by then a refresh may have changed it
(``docs/contracts/refresh.md``, Apply).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from iop import model as m
from iop.edge.surfaces.openai.apis.chat import ChatRequest
from iop.edge.surfaces.openai.apis.completions import CompletionRequest
from iop.edge.surfaces.openai.apis.embeddings import EmbeddingsRequest
from iop.edge.surfaces.openai.apis.messages import CountTokensRequest, MessagesRequest
from iop.edge.surfaces.openai.apis.passing import PassingRequest
from iop.edge.surfaces.openai.apis.responses import ResponsesRequest
from iop.edge.surfaces.openai.apis.shape import Building, Request
from iop.edge.surfaces.openai.policy import NO_POLICY, Policies
from iop.edge.surfaces.openai.translation import AsChat, no, unset
from iop.errors import Failure

_CHOICES: Final = b'"choices"'


class Question(NamedTuple):
    """A request, and what :class:`iop.edge.runs.Ask` needs of it.

    :ivar building: makes what puts an answer together out of events, by its id and its time of creation in seconds
        since 1970; None where events are no answer.
    :ivar api: the API that a provider must have, where that is not the operation's own name.
    :ivar thinking: how much it is to think, and ``translated`` whether it goes as a chat for that; asked at dispatch.
    :ivar strips_usage: the client is not to see the usage that the backend is asked for.
    :ivar corrected: makes of a backend's whole answer what was asked for; :raises Failure: for one that is none.
    :ivar answers: what an answer has in it, a stream apart; None where nobody here knows.
    :ivar content_type: of the body; "" for JSON.
    :ivar tokens: how long it counts as; None: as it is estimated.
    """

    request: Request
    native: Callable[[str], bytes]
    building: Callable[[str, int], Building] | None = None
    chat: Callable[[str], bytes] | None = None
    thinking: Callable[[], m.Thinking] = unset
    translated: Callable[[], bool] = no
    strips_usage: bool = False
    unserved: Callable[[], Failure] | None = None
    corrected: Callable[[bytes], bytes] | None = None
    answers: bytes | None = None
    content_type: str = ""
    api: str = ""
    tokens: int | None = None


def _limited(request: Request, policies: Policies, member: str) -> Callable[[str], bytes]:
    """Return what makes the body for a backend of the same API, which limits an answer by this member."""
    return lambda target: request.native(target, policies(request.model).limits(request.document, member))


def chat(body: bytes, policies: Policies) -> Question:
    """A chat completion; :raises Failure: ``invalid_json``, ``invalid_value``, as all of these do."""
    request = ChatRequest.parse(body)
    native = _limited(request, policies, "max_tokens")
    return Question(
        request,
        native,
        request.building,
        native,
        lambda: policies(request.model).thinking(request.document),
        strips_usage=request.strips_usage,
        answers=_CHOICES,
    )


def completion(body: bytes, policies: Policies) -> Question:
    """A text that goes on; as a chat it is one message."""
    request = CompletionRequest.parse(body)
    as_chat = None if request.only_native else AsChat(request, policies)
    if as_chat is not None:
        as_chat.wish()  # what is wrong with it is told before it waits
    return Question(
        request,
        _limited(request, policies, "max_tokens"),
        request.building,
        as_chat,
        unset if as_chat is None else as_chat.wish,
        strips_usage=request.strips_usage,
        unserved=_one_text_only,
        answers=_CHOICES,
    )


def _one_text_only() -> Failure:
    message = "the model's providers take one prompt, as text, without n, best_of, logprobs, echo and suffix"
    return Failure("invalid_value", message, param="prompt")


def embedding(body: bytes, policies: Policies) -> Question:
    """Vectors; no provider that lacks the API can make them of a chat."""
    request = EmbeddingsRequest.parse(body)
    return Question(request, partial(request.native, changes={}), corrected=request.corrected, answers=b'"data"')


def responses(body: bytes, policies: Policies) -> Question:
    """A response of OpenAI's younger API. A default for thinking makes a chat of it: nothing else can say how much."""
    request = ResponsesRequest.parse(body)
    as_chat = AsChat(request, policies)
    return Question(
        request,
        _limited(request, policies, "max_output_tokens"),
        request.building,
        as_chat,
        as_chat.wish,
        translated=as_chat.by_default,
        answers=b'"output"',
    )


def messages(body: bytes, policies: Policies) -> Question:
    """A message of Anthropic's API; the same holds for thinking."""
    request = MessagesRequest.parse(body)
    as_chat = AsChat(request, policies, request.thinking)
    return Question(
        request,
        _limited(request, policies, "max_tokens"),
        request.building,
        as_chat,
        as_chat.wish,
        translated=as_chat.by_default,
        answers=b'"content"',
    )


def count_tokens(body: bytes) -> tuple[Question, AsChat]:
    """How long such a message is: the question for a backend that counts, and the chat that is estimated instead."""
    request = CountTokensRequest.parse(body)
    return Question(
        request, partial(request.native, changes={}), api="messages", answers=b'"input_tokens"', tokens=0
    ), AsChat(request, lambda model: NO_POLICY)


def passing(body: bytes, content_type: str) -> Question:
    """A request of an API that is not known here."""
    request = PassingRequest.parse(body, content_type.encode("latin-1"))
    kind = content_type if request.span is not None else ""
    return Question(request, partial(request.native, changes={}), content_type=kind)
