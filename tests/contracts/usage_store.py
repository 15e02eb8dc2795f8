"""What every database of the ledger must do. A class of tests mixes this in and says how its store is made.

``docs/contracts/ledger.md`` (Storage).
"""

from __future__ import annotations

from typing import Any

from zope.interface.verify import verifyObject

from iop.edge.ledger.question import GROUPS, MOST_GROUPS, Question, document
from iop.edge.ledger.row import LARGEST, Row
from iop.interfaces import IUsageStore

HOUR = 3_600_000
NOON = 1_785_499_200_000
"""2026-07-31T12:00:00Z."""


def row(number: int, **changes: Any) -> Row:
    """Return a row of a run of that number."""
    made = Row(
        run_id=f"run-{number}",
        at_ms=NOON,
        surface="openai",
        operation="chat",
        token_ref="app",
        principal_ref="alice",
        principal_alias="Alice",
        model="m",
        provider="p1",
        outcome="complete",
        input_tokens=100,
        output_tokens=20,
        cached_tokens=50,
        reasoning_tokens=5,
        estimated=0,
        queue_ms=10,
        first_ms=200,
        total_ms=1000,
    )
    return made._replace(**changes)


class UsageStoreContract:
    """Tests that every store passes. A subclass sets ``store``, opened and empty, before each."""

    store: Any

    def usage(self, *by: str, since: int | None = None, until: int | None = None) -> list[dict[str, Any]]:
        question = Question(since, until, by)
        usage: list[dict[str, Any]] = document(question, self.store.sums(question))["usage"]
        return usage

    def runs(self) -> int:
        return int(self.usage()[0]["runs"])

    def test_it_provides_the_interface(self) -> None:
        assert verifyObject(IUsageStore, self.store)

    def test_nothing_is_one_row_of_zeros(self) -> None:
        assert self.usage() == [
            {
                "runs": 0,
                "input_tokens": 0,
                "output_tokens": 0,
                "cached_tokens": 0,
                "reasoning_tokens": 0,
                "estimated": 0,
                "mean_queue_ms": None,
                "mean_first_ms": None,
                "mean_total_ms": None,
            }
        ]
        assert self.usage("model") == []

    def test_sums_and_means(self) -> None:
        nothing = {"input_tokens": None, "output_tokens": None, "cached_tokens": None, "reasoning_tokens": None}
        assert self.store.insert([row(1), row(2, estimated=1, queue_ms=15, total_ms=2001)]) == 0
        assert self.store.insert([row(3, first_ms=None, outcome="cancelled", **nothing)]) == 0
        assert self.usage() == [
            {
                "runs": 3,
                "input_tokens": 200,
                "output_tokens": 40,
                "cached_tokens": 100,
                "reasoning_tokens": 10,
                "estimated": 1,
                "mean_queue_ms": 11.7,
                "mean_first_ms": 200.0,
                "mean_total_ms": 1333.7,
            }
        ]

    def test_a_run_is_written_once(self) -> None:
        self.store.insert([row(1), row(1, model="other"), row(2)])
        self.store.insert([row(2, model="other"), row(3)])
        assert self.usage("model") == self.usage("model", since=0)
        assert [(each["model"], each["runs"]) for each in self.usage("model")] == [("m", 3)]

    def test_nothing_to_write(self) -> None:
        assert self.store.insert([]) == 0
        assert self.runs() == 0

    def test_every_group(self) -> None:
        texts = GROUPS[:8]
        for number, name in enumerate(texts):
            self.store.insert([row(number, **{name: "another"})])
        for name in texts:
            usual = getattr(row(0), name)
            found = {each[name]: each["runs"] for each in self.usage(name)}
            assert found == {usual: len(texts) - 1, "another": 1}
        assert [each["runs"] for each in self.usage(*GROUPS)] == [1] * len(texts)

    def test_days_and_hours(self) -> None:
        for number, at_ms in enumerate((NOON - 1, NOON, NOON + HOUR - 1, NOON + 12 * HOUR, 0)):
            self.store.insert([row(number, at_ms=at_ms)])
        assert [(each["day"], each["runs"]) for each in self.usage("day")] == [
            ("1970-01-01", 1),
            ("2026-07-31", 3),
            ("2026-08-01", 1),
        ]
        assert [(each["hour"], each["model"], each["runs"]) for each in self.usage("hour", "model", since=1)] == [
            ("2026-07-31T11:00Z", "m", 1),
            ("2026-07-31T12:00Z", "m", 2),
            ("2026-08-01T00:00Z", "m", 1),
        ]

    def test_from_and_until(self) -> None:
        self.store.insert([row(number, at_ms=NOON + number) for number in range(10)])
        assert self.usage(since=NOON + 2, until=NOON + 5)[0]["runs"] == 3
        assert self.usage(since=NOON + 9)[0]["runs"] == 1
        assert self.usage(until=NOON)[0]["runs"] == 0

    def test_what_a_text_may_hold(self) -> None:
        words = ("", 'it\'s "quoted"', "%s :x ? ; --", "ünï\ncödé \U0001f600", "x" * 400)
        self.store.insert([row(number, model=each) for number, each in enumerate(words)])
        assert {each["model"] for each in self.usage("model")} == set(words)

    def test_the_largest_numbers(self) -> None:
        largest = dict.fromkeys(("input_tokens", "output_tokens", "queue_ms", "first_ms", "total_ms"), LARGEST)
        self.store.insert([row(number, **largest) for number in range(2)])
        assert self.usage()[0]["input_tokens"] == 2 * LARGEST

    def test_many_rows_at_once(self) -> None:
        self.store.insert([row(number) for number in range(1000)])
        assert self.runs() == 1000

    def test_more_groups_than_an_answer_has(self) -> None:
        self.store.insert([row(number, model=f"m{number}") for number in range(MOST_GROUPS + 2)])
        question = Question(by=("model",))
        found = document(question, self.store.sums(question))
        assert (len(found["usage"]), found["truncated"]) == (MOST_GROUPS, True)

    def test_it_opens_again(self) -> None:
        self.store.insert([row(1)])
        self.store.open()
        assert self.runs() == 1
