"""What is left of a request when it is over: for the usage ledger, the metrics and the access log. Pure.

Never a prompt, an answer, a token or an address. ``docs/contracts/openai.md`` (Usage ledger, Access log).
"""

from __future__ import annotations

from typing import NamedTuple

from iop.model import Usage


class Attempt(NamedTuple):
    """One provider that a run was sent to, as its node calls them, and how that ended: an outcome as a record's.

    :ivar status: the HTTP status of its failure; 0 for none.
    """

    node: str
    provider: str
    outcome: str
    status: int = 0


class Record(NamedTuple):
    """One request of a client, ended.

    :ivar at: when it ended, in seconds since 1970.
    :ivar operation: ``chat``, ``completion``, ``embedding``, ``responses``, ``messages``, ``count_tokens``,
        ``passthrough``, ``models``, ``health``; "" for a request without a route.
    :ivar outcome: ``complete``, ``cancelled``, a code of :data:`iop.errors.KINDS` or a backend's own, or the HTTP
        status of a backend that gave no code.
    :ivar status: the HTTP status of the answer; 499 where the client left first.
    :ivar model: what the client asked for, cut to 200 characters; "" where it named none.
    :ivar known: whether the configuration has that model.
    :ivar run_id: "" for a request that never became a run; with ``admitted``, the pool let it in.
    :ivar provider: the last one it was sent to, ``node`` its node; "" for none.
    :ivar usage: what was counted; ``estimated`` where the edge had to guess.
    :ivar fallback: of a run whose tools travelled as text: ``parsed`` where calls were found, else ``plain_text``.
    :ivar queue_ms: waited for a slot, in all its attempts.
    :ivar first_ms: from the whole request to the first piece of the answer; None where none came.
    :ivar total_ms: from the whole request to its end.
    """

    at: float
    operation: str
    outcome: str
    status: int
    surface: str = "openai"
    request_id: str = ""
    token_ref: str = ""
    principal_ref: str = ""
    principal_alias: str = ""
    model: str = ""
    known: bool = False
    stream: bool = False
    run_id: str = ""
    admitted: bool = False
    provider: str = ""
    node: str = ""
    usage: Usage = Usage()
    estimated: bool = False
    fallback: str = ""
    queue_ms: int = 0
    first_ms: int | None = None
    total_ms: int = 0
    attempts: tuple[Attempt, ...] = ()
