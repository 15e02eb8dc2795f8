"""Whether the other end lives: counted in heartbeats."""

from __future__ import annotations

from iop.wire.liveness import PATIENCE, Check, Liveness


def test_silence_is_asked_about_three_times_and_then_it_is_over() -> None:
    liveness = Liveness()
    checks = [liveness.beat(0) for _ in range(6)]
    assert PATIENCE == 3
    assert checks[:5] == [Check.FINE, Check.ASK, Check.ASK, Check.ASK, Check.LOST]


def test_anything_heard_starts_anew() -> None:
    liveness = Liveness()
    heard = [0, 0, 0, 0, 7, 7, 7, 7, 8]
    checks = [liveness.beat(each) for each in heard]
    assert checks == [Check.FINE, *[Check.ASK] * 3, Check.FINE, *[Check.ASK] * 3, Check.FINE]


def test_a_lively_link_is_never_asked() -> None:
    liveness = Liveness()
    assert {liveness.beat(each) for each in range(100)} == {Check.FINE}
