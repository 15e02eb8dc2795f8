"""The seams: interfaces with two implementations or more.

A plugin author needs this module and :mod:`iop.model` only; ``docs/contracts/adapters.md`` is the contract.
"""

from __future__ import annotations

from typing import Final

from zope.interface import Attribute, Interface

MOST_SESSIONS: Final = 1000
"""Of a node's report: more of them might not fit a frame."""


class IRefreshable(Interface):
    """A part of a running edge that can go over to another configuration (``docs/contracts/refresh.md``, Apply).

    All parts prepare, then all commit; or all that prepared abandon, and nothing has changed.
    """

    def prepare(config):  # type: ignore[no-untyped-def]
        """Make everything that an :class:`iop.edge.config.EdgeConfig` needs, and change nothing.

        :return: a token for :meth:`commit` or :meth:`abandon`.
        :raises iop.errors.Failure: why this part cannot go over to it.
        """

    def commit(token):  # type: ignore[no-untyped-def]
        """Go over to what was prepared, at once. It cannot fail."""

    def abandon(token):  # type: ignore[no-untyped-def]
        """Forget what was prepared."""


class IRecorder(Interface):
    """Keeps or counts what requests were, once they are over: the ledger, the metrics, the access log."""

    def record(record):  # type: ignore[no-untyped-def]
        """Take an :class:`iop.edge.record.Record`. It returns at once, waits for nothing and cannot fail."""


class IUsageStore(Interface):
    """Where the ledger's rows end: a database. It blocks, and is called by the ledger's threads only.

    ``docs/contracts/ledger.md`` (Storage). ``insert`` and ``sums`` may be called at the same time, from two threads.
    """

    def open():  # type: ignore[no-untyped-def]
        """Connect, and make the tables what this program needs. Called again until it works.

        :raises iop.errors.Failure: ``ledger_refused`` for what will not get better: a driver that is not installed, a
            schema that is newer than the program; ``ledger_away`` for what may.
        """

    def insert(rows):  # type: ignore[no-untyped-def]
        """Write :class:`iop.edge.ledger.row.Row`\\ s, and leave those be whose run is there. Committed on return.

        :return: how many of them this database will never take; the others are written.
        :raises iop.errors.Failure: ``ledger_away``; nothing is written then, or all.
        """

    def sums(question):  # type: ignore[no-untyped-def]
        """Answer an :class:`iop.edge.ledger.question.Question` with a list of its ``Sums``, in any order.

        One group more than ``MOST_GROUPS`` says that there are more.

        :raises iop.errors.Failure: ``ledger_away``.
        """

    def close():  # type: ignore[no-untyped-def]
        """Let go of everything. Nothing is called after it."""


class IAdapterFactory(Interface):
    """Makes adapters of one type; found by :attr:`name` through ``twisted.plugin``."""

    name = Attribute("The type word that configuration uses, as in ``type: openai_compat``.")
    title = Attribute("What it is, for people; one line.")
    settings_schema = Attribute("JSON Schema (2020-12) of the settings, as a dict.")
    capabilities = Attribute(
        """A dict: ``modes`` (a set of :class:`iop.model.Mode`), ``endpoints`` (paths it can serve in passthrough mode;
        empty means any), ``sessions`` and ``embeddings`` (bool)."""
    )

    def make(settings, environment):  # type: ignore[no-untyped-def]
        """Return an :class:`IAdapter`.

        :param settings: a mapping that :attr:`settings_schema` has accepted.
        :param environment: an :class:`iop.node.adapters.environment.Environment`: all an adapter may know of its node.
        :raises iop.errors.Failure: ``invalid_value`` when the settings cannot work.
        """


class IAdapter(Interface):
    """One instance: turns runs into one backend's protocol and back."""

    def start():  # type: ignore[no-untyped-def]
        """Get ready. May return a Deferred."""

    def stop():  # type: ignore[no-untyped-def]
        """End everything that is left, connections and children included. May return a Deferred."""

    def run(request, sink):  # type: ignore[no-untyped-def]
        """Execute a run.

        :param request: an :class:`iop.node.adapters.environment.Run`: the request, and whose backend it goes to.
        :param sink: an :class:`ISink`, told everything that comes of it.
        :return: a Deferred that fires with None when the run has ended: its terminal call on the sink is made, and
            nothing of it is left. Cancelling it cancels the run: the backend is stopped at once, and it fires (or
            fails with ``CancelledError``) when that is done. Failing with :class:`iop.errors.Failure` is the same as
            ``sink.fail``.
        """

    def probe(path=""):  # type: ignore[no-untyped-def]
        """Return a Deferred of the backend's :class:`iop.model.Health`.

        A :class:`iop.errors.Failure` says in words why it is ``DOWN``; it fails else only when it is cancelled.

        :param path: what to ask for, where the provider's ``health.path`` says so; given only then.
        """

    def models():  # type: ignore[no-untyped-def]
        """Return a Deferred of the targets that the backend says it has, a list of str."""

    def sessions():  # type: ignore[no-untyped-def]
        """Return the sessions it knows, those too that are gone; empty where there is no such thing.

        Of more than :data:`MOST_SESSIONS` only the ones used last are told; one more than that says that there are.
        Each is a mapping of ``session_id``, ``state``, ``workspace``, and ``created`` and ``last_used`` in seconds.
        """

    def terminate_session(session_id):  # type: ignore[no-untyped-def]
        """End a session and its child; return a Deferred of whether there was one."""


class ISink(Interface):
    """Where a run's answer goes, in the order ``start``, ``delta``\\ *, then ``complete`` or ``fail``; or ``whole``."""

    def attach(source):  # type: ignore[no-untyped-def]
        """Name what is to pause: an object with ``pause()`` and ``resume()``, called as credit goes and comes.

        Where it has a ``usage``, that is what a run that is cancelled has used (:class:`iop.model.Usage`, or None).
        """

    def start(http=None, metadata=None):  # type: ignore[no-untyped-def]
        """The answer begins; ``http`` (:class:`iop.model.HttpResponseHead`) says that bytes follow."""

    def delta(body=b"", text="", reasoning=""):  # type: ignore[no-untyped-def]
        """A piece: ``body`` after a ``start`` with ``http``, else ``text`` and ``reasoning``."""

    def complete(finish_reason="", usage=None, metadata=None):  # type: ignore[no-untyped-def]
        """The answer is whole."""

    def whole(http, body, finish_reason="", usage=None, metadata=None):  # type: ignore[no-untyped-def]
        """A passthrough answer that is at hand whole: the same as ``start``, ``delta`` and ``complete``, for less."""

    def fail(failure, usage=None):  # type: ignore[no-untyped-def]
        """The run failed with an :class:`iop.errors.Failure`."""
