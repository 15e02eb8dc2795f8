"""What every adapter must do. A class of tests mixes this in and says how to make its adapter behave.

``docs/contracts/adapters.md`` (Interface).
"""

from __future__ import annotations

from typing import Any

import pytest
from doubles import RaisingSink, RecordingSink
from jsonschema import Draft202012Validator
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.python.failure import Failure as TwistedFailure
from zope.interface.verify import verifyObject

from iop import model as m
from iop.errors import KINDS, Failure
from iop.interfaces import IAdapter, IAdapterFactory, ISink


class AdapterContract:
    """Tests that every adapter passes.

    A subclass gives ``factory`` and the hooks. ``begin(kind)`` starts a run whose backend does as the kind says, and
    returns its Deferred and its :class:`RecordingSink`:

    - ``answers``: says ``PIECES`` and ends well;
    - ``refuses``: refuses, before anything is said;
    - ``breaks``: says the first piece and fails;
    - ``silent``: says nothing at all;
    - ``garbage``: says the first piece, and then what is nothing of its protocol;
    - ``goes on``: begins, says the first piece, and then one more at each :meth:`more`;
    - ``raises``: the same, but the adapter's own work on the first piece raises (see :meth:`sink`).

    Pieces are bytes of the answer, or UTF-8 of its text where the run is normalized.
    """

    PIECES: tuple[bytes, ...] = (b"data: one\n\n", b"data: two\n\n")

    factory: Any

    def setup_method(self) -> None:
        self.adapter = self.make()

    # ---- hooks

    def make(self) -> Any:
        """Return a started adapter, with a backend that is up."""
        raise NotImplementedError

    def begin(self, kind: str) -> tuple[Deferred[Any], RecordingSink]:
        raise NotImplementedError

    def more(self) -> bytes:
        """Let the newest run's backend say another piece; return it as the client would see it."""
        raise NotImplementedError

    def flush(self) -> None:
        """Let everything happen that can."""

    def open(self) -> int:
        """How many runs the backend still works on."""
        raise NotImplementedError

    def break_backend(self) -> None:
        """From now on the backend cannot be reached."""
        raise NotImplementedError

    # ---- what is common to the tests

    def sink(self, kind: str) -> RecordingSink:
        """Return a sink for a run of a kind."""
        return RaisingSink() if kind == "raises" else RecordingSink()

    def started(self, kind: str) -> tuple[list[Any], RecordingSink, Deferred[Any]]:
        """Begin; return what its Deferred fires with, as often as it fires."""
        deferred, sink = self.begin(kind)
        fired: list[Any] = []
        deferred.addBoth(fired.append)
        self.flush()
        return fired, sink, deferred

    # ---- the tests

    def test_provides_the_interfaces(self) -> None:
        verifyObject(IAdapter, self.adapter)
        verifyObject(IAdapterFactory, self.factory)
        verifyObject(ISink, RecordingSink())

    def test_the_factory_describes_itself(self) -> None:
        assert self.factory.name.isidentifier()
        assert self.factory.title
        Draft202012Validator.check_schema(dict(self.factory.settings_schema))
        assert self.factory.settings_schema["type"] == "object"
        capabilities = self.factory.capabilities
        assert set(capabilities) == {"modes", "endpoints", "sessions", "embeddings"}
        assert set(capabilities["modes"]) <= set(m.Mode)

    def test_a_good_answer_starts_says_and_completes_in_order(self) -> None:
        fired, sink, _ = self.started("answers")
        assert fired == [None]
        kinds = [type(event) for event in sink.events]
        assert kinds == [m.Whole] or (kinds[0] is m.Start and kinds[-1] is m.Complete), kinds
        assert set(kinds[1:-1]) <= {m.Delta}
        assert sink.said == b"".join(self.PIECES)
        assert self.open() == 0

    def test_a_refusal_is_a_failure_with_a_code(self) -> None:
        fired, sink, _ = self.started("refuses")
        assert fired == [None]
        assert [type(event) for event in sink.events] == [m.Error]
        assert sink.failure.code in KINDS or sink.failure.code
        assert sink.failure.message
        assert self.open() == 0

    def test_a_break_is_a_failure_after_what_was_said(self) -> None:
        fired, sink, _ = self.started("breaks")
        assert fired == [None]
        assert [type(event) for event in sink.events] == [m.Start, m.Delta, m.Error]
        assert sink.said == self.PIECES[0]
        assert self.open() == 0

    def test_garbage_is_a_failure_after_what_was_said(self) -> None:
        fired, sink, _ = self.started("garbage")
        assert fired == [None]
        assert [type(event) for event in sink.events] == [m.Start, m.Delta, m.Error]
        assert sink.said == self.PIECES[0]
        assert sink.failure.code == "upstream_error"
        assert self.open() == 0

    def test_what_raises_ends_the_run_and_leaves_nothing(self) -> None:
        """The node says of it what has to be said; a run that is over at the backend only would hold its slot."""
        fired, sink, _ = self.started("raises")
        assert len(fired) == 1
        assert fired[0] is None or fired[0].check(ZeroDivisionError)
        assert sink.said == b""
        assert fired[0] is not None or isinstance(sink.end, m.Error)
        assert self.open() == 0

    @pytest.mark.parametrize("kind", ["raises", "silent", "garbage"])
    def test_a_run_that_goes_wrong_harms_no_other(self, kind: str) -> None:
        """The contract: an adapter that raises, never answers or says nonsense harms its own run only."""
        under_way, before, _ = self.started("goes on")
        fired, _, wrong = self.started(kind)
        assert len(fired) == (0 if kind == "silent" else 1)
        answered, after, _ = self.started("answers")
        assert answered == [None]
        assert after.said == b"".join(self.PIECES)
        assert isinstance(after.end, m.Complete | m.Whole)
        wrong.cancel()
        self.flush()
        assert self.open() == 1
        more = self.more()
        self.flush()
        assert before.said == self.PIECES[0] + more
        assert (under_way, before.end) == ([], None)

    def test_a_silent_backend_keeps_the_run_waiting(self) -> None:
        fired, sink, _ = self.started("silent")
        assert fired == []
        assert sink.events == []
        assert self.open() == 1

    def _cancelled(self, kind: str) -> RecordingSink:
        fired, sink, deferred = self.started(kind)
        assert self.open() == 1
        deferred.cancel()
        self.flush()
        assert len(fired) == 1
        assert fired[0] is None or fired[0].check(CancelledError)
        assert self.open() == 0
        return sink

    def test_cancelling_before_the_first_byte_stops_the_backend(self) -> None:
        assert self._cancelled("silent").events == []

    def test_cancelling_mid_stream_stops_the_backend_and_nothing_comes_after(self) -> None:
        sink = self._cancelled("goes on")
        assert [type(event) for event in sink.events] == [m.Start, m.Delta]

    def test_cancelling_at_once_leaves_nothing(self) -> None:
        deferred, sink = self.begin("goes on")
        fired: list[Any] = []
        deferred.addBoth(fired.append)
        deferred.cancel()
        self.flush()
        assert len(fired) == 1
        assert sink.end is None
        assert self.open() == 0

    def test_cancelling_after_the_end_is_nothing(self) -> None:
        fired, sink, deferred = self.started("answers")
        deferred.cancel()
        self.flush()
        assert fired == [None]
        assert isinstance(sink.end, m.Complete | m.Whole)

    def test_pausing_stops_the_source_and_resuming_loses_nothing(self) -> None:
        fired, sink, _ = self.started("goes on")
        said = sink.said
        assert said
        sink.source.pause()
        more = [self.more(), self.more()]
        self.flush()
        assert sink.said == said
        sink.source.resume()
        self.flush()
        assert sink.said == said + b"".join(more)
        more.append(self.more())
        self.flush()
        assert sink.said == said + b"".join(more)
        assert fired == []

    def test_pausing_twice_and_resuming_twice_is_once(self) -> None:
        _, sink, _ = self.started("goes on")
        said = sink.said
        for _ in range(2):
            sink.source.pause()
        more = self.more()
        for _ in range(2):
            sink.source.resume()
        self.flush()
        assert sink.said == said + more

    def test_cancelling_while_paused_stops_the_backend(self) -> None:
        fired, sink, deferred = self.started("goes on")
        sink.source.pause()
        self.more()
        self.flush()
        deferred.cancel()
        self.flush()
        assert len(fired) == 1
        assert self.open() == 0

    def test_runs_side_by_side_do_not_mix(self) -> None:
        first, one, deferred = self.started("goes on")
        second, other, _ = self.started("answers")
        assert second == [None]
        assert other.said == b"".join(self.PIECES)
        assert one.said == self.PIECES[0]
        deferred.cancel()
        self.flush()
        assert len(first) == 1

    def test_stop_ends_everything(self) -> None:
        ends = [self.started("goes on"), self.started("silent")]
        maybeDeferred(self.adapter.stop)
        self.flush()
        assert self.open() == 0
        for fired, sink, _ in ends:
            assert len(fired) == 1
            if fired == [None]:
                assert isinstance(sink.end, m.Error)

    def test_stopping_twice_is_once(self) -> None:
        for _ in range(2):
            maybeDeferred(self.adapter.stop).addErrback(lambda reason: reason.raiseException())

    def _result(self, deferred: Deferred[Any]) -> Any:
        got: list[Any] = []
        deferred.addBoth(got.append)
        self.flush()
        assert len(got) == 1
        return got[0]

    def test_a_probe_says_how_the_backend_is(self) -> None:
        assert self._result(self.adapter.probe()) is m.Health.UP

    def test_a_probe_says_that_the_backend_is_away(self) -> None:
        """By the word, or by a Failure that says why."""
        self.break_backend()
        said = self._result(self.adapter.probe())
        if isinstance(said, TwistedFailure):
            assert said.check(Failure)
            assert said.value.message
        else:
            assert said is m.Health.DOWN

    def test_models_are_names(self) -> None:
        models = self._result(self.adapter.models())
        assert models
        assert all(isinstance(model, str) and model for model in models)

    def test_models_of_a_backend_that_is_away(self) -> None:
        self.break_backend()
        models = self._result(self.adapter.models())
        if isinstance(models, TwistedFailure):
            assert models.check(Failure)
        else:
            assert isinstance(models, list)

    def test_no_sessions_to_begin_with(self) -> None:
        assert list(self.adapter.sessions()) == []
        assert self._result(maybeDeferred(self.adapter.terminate_session, "nobody's")) is False
