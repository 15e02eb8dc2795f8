"""The rules of a link and of a run, as tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from iop import model as m
from iop.wire import peer
from iop.wire.peer import ESTABLISHED, RECEIVES, RUN, SENDS, LinkState, Peer, RunRules, RunState, Side, Violation
from iop.wire.translate import KINDS

OTHER = {Side.EDGE: Side.NODE, Side.NODE: Side.EDGE}
EVERY = sorted({*KINDS.values(), "run_event", "run_request"})
EVENTS = [m.Start, m.Delta, m.Complete, m.Whole, m.Error, m.Cancelled]
TERMINAL = {m.Complete, m.Whole, m.Error, m.Cancelled}


@pytest.mark.parametrize("side", Side)
def test_what_one_side_may_send_the_other_may_receive_and_nothing_else(side: Side) -> None:
    assert SENDS[side] == RECEIVES[OTHER[side]]


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("state", LinkState)
def test_every_message_in_every_state(side: Side, state: LinkState) -> None:
    """What has no place is a violation and changes nothing."""
    for kind in EVERY:
        link = Peer(side)
        link.state = state
        expected = RECEIVES[side].get(kind, {}).get(state)
        if expected is None:
            with pytest.raises(Violation, match=f"{kind} received on a link that is {state.value}"):
                link.received(kind)
            assert link.state is state
        else:
            link.received(kind)
            assert link.state is expected


@pytest.mark.parametrize("side", Side)
def test_a_closed_link_takes_and_says_nothing(side: Side) -> None:
    link = Peer(side)
    link.state = LinkState.CLOSED
    for kind in EVERY:
        with pytest.raises(Violation):
            link.received(kind)
        with pytest.raises(Violation):
            link.sent(kind)


@pytest.mark.parametrize("side", Side)
def test_established_is_what_keeps_a_registered_link_as_it_is(side: Side) -> None:
    assert ESTABLISHED[side] == {
        kind for kind, states in RECEIVES[side].items() if states == {LinkState.REGISTERED: LinkState.REGISTERED}
    }


def test_before_registration_only_registration_has_a_place() -> None:
    for side in Side:
        early = {
            kind
            for table in (RECEIVES[side], SENDS[side])
            for kind, states in table.items()
            if {LinkState.OPEN, LinkState.REGISTERING} & states.keys()
        }
        assert early == {"register_request", "register_response"}


def test_registration() -> None:
    edge, node = Peer(Side.EDGE), Peer(Side.NODE)
    node.sent("register_request")
    edge.received("register_request")
    assert (edge.state, node.state) == (LinkState.REGISTERING, LinkState.REGISTERING)
    edge.sent("register_response")
    node.received("register_response")
    assert (edge.state, node.state) == (LinkState.REGISTERED, LinkState.REGISTERED)
    with pytest.raises(Violation):
        edge.received("register_request")


@given(st.lists(st.tuples(st.sampled_from(Side), st.sampled_from(EVERY))))
def test_two_sides_that_keep_the_rules_always_agree(moves: list[tuple[Side, str]]) -> None:
    """A message that its sender may send never violates the receiver's rules, when it arrives at once."""
    peers = {side: Peer(side) for side in Side}
    for side, kind in moves:
        try:
            peers[side].sent(kind)
        except Violation:
            continue
        peers[OTHER[side]].received(kind)
        assert peers[Side.EDGE].state is peers[Side.NODE].state


# ---- runs


def test_the_table_of_runs_is_the_contracts() -> None:
    assert set(EVENTS) == set(m.RunEvent.__args__)
    for (state, kind), after in RUN.items():
        assert state is not RunState.ENDED
        assert (after is RunState.ENDED) is (kind in TERMINAL)
        assert (state is RunState.ASKED) is (kind in (m.Start, m.Whole)) or kind in (m.Error, m.Cancelled)


@pytest.mark.parametrize(
    "events",
    [
        [m.Start, m.Delta, m.Delta, m.Complete],
        [m.Start, m.Complete],
        [m.Start, m.Error],
        [m.Start, m.Delta, m.Cancelled],
        [m.Whole],
        [m.Error],
        [m.Cancelled],
    ],
)
def test_good_runs(events: list[type]) -> None:
    rules = RunRules()
    for seq, kind in enumerate(events):
        rules.event(seq, kind)
    assert rules.state is RunState.ENDED
    for kind in EVENTS:
        with pytest.raises(Violation):
            rules.event(len(events), kind)


@pytest.mark.parametrize(
    "events", [[m.Delta], [m.Complete], [m.Start, m.Start], [m.Start, m.Whole], [m.Start, m.Delta, m.Start]]
)
def test_types_out_of_turn(events: list[type]) -> None:
    rules = RunRules()
    *good, bad = events
    for seq, kind in enumerate(good):
        rules.event(seq, kind)
    with pytest.raises(Violation, match=bad.__name__):
        rules.event(len(good), bad)


@pytest.mark.parametrize("seq", [0, 2, 7, 1 << 63])
def test_a_gap_or_a_repetition(seq: int) -> None:
    rules = RunRules()
    rules.event(0, m.Start)
    with pytest.raises(Violation, match="where 1 was due"):
        rules.event(seq, m.Delta)


class AnyRun(RuleBasedStateMachine):
    """Whatever comes, a run's rules let through only what the contract draws."""

    def __init__(self) -> None:
        super().__init__()
        self.rules = RunRules()
        self.seen: list[type] = []

    @rule(kind=st.sampled_from(EVENTS), gap=st.sampled_from([0, 0, 0, -1, 1]))
    def event(self, kind: type, gap: int) -> None:
        before = self.rules.state, self.rules.seq
        try:
            self.rules.event(len(self.seen) + gap, kind)
        except Violation:
            assert (self.rules.state, self.rules.seq) == before
        else:
            assert gap == 0
            self.seen.append(kind)

    @precondition(lambda self: self.seen)
    @invariant()
    def only_whole_runs(self) -> None:
        assert all(kind not in TERMINAL for kind in self.seen[:-1])
        assert self.seen[0] is m.Start or len(self.seen) == 1
        assert m.Start not in self.seen[1:]
        assert (self.rules.state is peer.RunState.ENDED) is (self.seen[-1] in TERMINAL)


TestAnyRun = AnyRun.TestCase
