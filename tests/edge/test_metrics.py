"""What is counted of a request, and under which words. docs/metrics.md."""

from __future__ import annotations

import random
import string
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from twisted.internet.task import Clock
from zope.interface.verify import verifyObject

import iop
from iop.edge.metrics import names, words
from iop.edge.metrics.lag import INTERVAL, Lag
from iop.edge.metrics.live import Reading
from iop.edge.metrics.recorder import MOST_MODELS, MOST_NODES, Metrics
from iop.edge.record import Attempt, Record
from iop.edge.refresh import Status
from iop.errors import KINDS
from iop.interfaces import IRecorder
from iop.model import Usage

BEGAN = 1_700_000_000.0

RUN = Record(
    BEGAN, "chat", "complete", 200, model="m", known=True, run_id="run-1", admitted=True, provider="p", node="n"
)

LABELS = {
    metric.name + suffix: metric.labels
    for metric in names.ALL
    for suffix in (("_count", "_sum") if metric.type == "histogram" else ("",))
}


class Scraped:
    """Metrics, as somebody who scrapes them sees them."""

    def __init__(self) -> None:
        self.now = BEGAN
        self.metrics = Metrics(lambda: self.now)

    def __call__(self, *records: Record) -> dict[tuple[str, ...], float]:
        """Record; return every sample of ours: its name and the values of its labels, in the order of its labels."""
        for record in records:
            self.metrics.record(record)
        return {
            (sample.name, *(sample.labels[label] for label in LABELS[sample.name])): sample.value
            for sample in self.samples()
            if sample.name in LABELS
        }

    def samples(self) -> list[Any]:
        self.metrics.look()
        text = self.metrics.exposition("")[0].decode()
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def changed(*records: Record) -> dict[tuple[str, ...], float]:
    """What records make of metrics; what was there before them is left out."""
    scraped = Scraped()
    before = scraped()
    return {
        key: value
        for key, value in scraped(*records).items()
        if key[0].startswith(WRITTEN) and value != before.get(key) and (value or key[0] != names.REQUESTS.name)
    }


WRITTEN = tuple(
    metric.name
    for metric in names.ALL
    if metric not in (names.BUILD, names.RELOADED, names.LAG) and metric.type != "gauge"
)


# ---- words


def test_every_outcome_has_one_word() -> None:
    listed = [outcome for outcomes in words.OUTCOMES.values() for outcome in outcomes]
    assert sorted(listed) == sorted({*KINDS, "complete", "cancelled"})


@pytest.mark.parametrize(
    ("outcome", "status", "word"),
    [
        ("complete", 200, "ok"),
        ("cancelled", 499, "cancelled"),
        ("content_filter", 400, "client_error"),
        ("insufficient_quota", 429, "rate_limited"),
        ("engine_dead", 500, "upstream_error"),
        ("engine_dead", 0, "upstream_error"),
        ("404", 404, "client_error"),
        ("429", 0, "rate_limited"),
        ("503", 0, "overloaded"),
        ("504", 0, "timeout"),
        ("502", 200, "upstream_error"),
        ("9" * 5000, 0, "upstream_error"),
        ("²", 0, "upstream_error"),
        ("", 0, "upstream_error"),
    ],
)
def test_outcomes_of_backends(outcome: str, status: int, word: str) -> None:
    assert words.outcome_of(outcome, status) == word


def test_everything_that_is_tried_again_has_its_reason() -> None:
    assert set(words.RETRIES) == {code for code, kind in KINDS.items() if kind.retryable}
    assert set(words.AUTH) == words.OUTCOMES["auth_error"]
    assert set(words.REJECTIONS) <= set(KINDS)


def test_every_end_of_a_refresh_has_its_word() -> None:
    assert tuple(Status) == words.RELOADS


# ---- a request


def test_it_is_a_recorder() -> None:
    assert verifyObject(IRecorder, Metrics(lambda: 0.0))


def test_a_stream() -> None:
    usage = Usage(100, 21, 60, 5)
    record = RUN._replace(stream=True, queue_ms=250, first_ms=500, total_ms=1500, usage=usage)
    assert changed(record) == pytest.approx(
        {
            ("iop_requests_total", "chat", "m", "ok"): 1,
            ("iop_request_duration_seconds_count", "chat", "m"): 1,
            ("iop_request_duration_seconds_sum", "chat", "m"): 1.5,
            ("iop_time_to_first_token_seconds_count", "chat", "m"): 1,
            ("iop_time_to_first_token_seconds_sum", "chat", "m"): 0.5,
            ("iop_time_per_output_token_seconds_count", "chat", "m"): 1,
            ("iop_time_per_output_token_seconds_sum", "chat", "m"): 0.05,
            ("iop_queue_duration_seconds_count", "m"): 1,
            ("iop_queue_duration_seconds_sum", "m"): 0.25,
            ("iop_input_tokens_total", "m", "hit"): 60,
            ("iop_input_tokens_total", "m", "miss"): 40,
            ("iop_output_tokens_total", "m", "reasoning"): 5,
            ("iop_output_tokens_total", "m", "answer"): 16,
        }
    )


@pytest.mark.parametrize(
    "change",
    [
        {"stream": False},
        {"usage": Usage(1, 1)},
        {"usage": Usage()},
        {"estimated": True},
        {"outcome": "upstream_error", "status": 502},
        {"first_ms": None},
    ],
)
def test_what_has_no_time_per_token(change: dict[str, Any]) -> None:
    record = RUN._replace(stream=True, first_ms=1, total_ms=2, usage=Usage(1, 9))._replace(**change)
    assert ("iop_time_per_output_token_seconds_count", "chat", "m") not in changed(record)


def test_an_answer_in_one_piece_has_no_first_token() -> None:
    assert ("iop_time_to_first_token_seconds_count", "chat", "m") not in changed(RUN._replace(first_ms=9))


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (Usage(10), {("iop_input_tokens_total", "m", "unknown"): 10}),
        (Usage(10, cached_input_tokens=0), {("iop_input_tokens_total", "m", "miss"): 10}),
        (
            Usage(10, cached_input_tokens=99),
            {("iop_input_tokens_total", "m", "miss"): 0, ("iop_input_tokens_total", "m", "hit"): 10},
        ),
        (Usage(None, 4), {("iop_output_tokens_total", "m", "answer"): 4}),
        (Usage(-5, -5, -5, -5), {("iop_input_tokens_total", "m", "miss"): 0}),
        (Usage(10**400), {("iop_input_tokens_total", "m", "unknown"): 1 << 48}),
    ],
)
def test_tokens(usage: Usage, expected: dict[tuple[str, ...], float]) -> None:
    seen = changed(RUN._replace(usage=usage))
    assert expected.items() <= seen.items()
    assert all(value >= 0 for value in seen.values())


def test_a_run_that_went_elsewhere() -> None:
    attempts = tuple(
        Attempt(*each)
        for each in (("a", "p", "upstream_connect"), ("b", "q", "503"), ("b", "r", "node_lost"), ("c", "s", "complete"))
    )
    seen = changed(RUN._replace(attempts=attempts))
    assert {key[1:]: value for key, value in seen.items() if key[0] == "iop_dispatch_attempts_total"} == {
        ("a", "upstream_error"): 1,
        ("b", "overloaded"): 1,
        ("b", "upstream_error"): 1,
        ("c", "ok"): 1,
    }
    assert {key[1:]: value for key, value in seen.items() if key[0] == "iop_retries_total"} == {
        ("connect",): 1,
        ("other",): 1,
        ("node_lost",): 1,
    }


def test_a_request_that_nobody_was_asked_about() -> None:
    refused = RUN._replace(outcome="no_provider", status=503, admitted=False, provider="", node="", total_ms=3)
    assert changed(refused) == {
        ("iop_requests_total", "chat", "m", "overloaded"): 1,
        ("iop_admission_rejections_total", "no_node"): 1,
    }


def test_a_backend_that_says_too_long_is_no_rejection() -> None:
    attempts = (Attempt("n", "p", "context_length_exceeded"),)
    seen = changed(RUN._replace(outcome="context_length_exceeded", status=400, attempts=attempts))
    assert ("iop_admission_rejections_total", "too_large") not in seen


@pytest.mark.parametrize(("code", "reason"), words.AUTH.items())
def test_a_request_refused_at_the_door(code: str, reason: str) -> None:
    refused = Record(BEGAN, "chat", code, 401)
    assert changed(refused) == {
        ("iop_requests_total", "chat", "_unknown", "auth_error"): 1,
        ("iop_auth_failures_total", "openai", reason): 1,
    }


def test_tools_as_text() -> None:
    seen = changed(RUN._replace(fallback="parsed"), RUN._replace(fallback="plain_text"), RUN._replace(fallback="?"))
    assert {key[1:] for key in seen if key[0] == "iop_tool_call_fallback_total"} == {
        ("m", "parsed"),
        ("m", "plain_text"),
    }


def test_probes_are_not_counted() -> None:
    assert changed(Record(BEGAN, "health", "complete", 200)) == {}


def test_what_may_happen_is_there_before_it_happens() -> None:
    scraped = Scraped()
    seen = scraped()
    for key in ("iop_config_reloads_total", "rejected"), ("iop_auth_failures_total", "openai", "invalid_token"):
        assert seen[key] == 0
    assert scraped(RUN)["iop_requests_total", "chat", "m", "internal"] == 0


# ---- ME-01: whatever clients send, the series stay as many


def _word(chance: random.Random) -> str:
    return "".join(chance.choices(string.printable + "é\0\u2028", k=chance.randrange(1, 60)))


def test_me_01_the_number_of_series_is_bounded() -> None:
    chance = random.Random(1)
    scraped = Scraped()
    scraped(RUN)
    for operation in (*words.OPERATIONS, ""):
        for code in (*KINDS, "complete"):
            scraped.metrics.record(Record(BEGAN, operation, code, 400))
    before = len(scraped.samples())
    for _ in range(10_000):
        record = Record(
            BEGAN,
            chance.choice([*words.OPERATIONS, "", _word(chance)]),
            chance.choice([*KINDS, "complete"]),
            chance.randrange(400, 600),
            request_id=_word(chance),
            token_ref=_word(chance),
            model=_word(chance),
        )
        scraped.metrics.record(record)
    assert len(scraped.samples()) == before
    named = 'quote " backslash \\ newline \n' + "x" * 10_000
    scraped.metrics.record(Record(BEGAN, "chat", "model_not_found", 404, model=named))
    assert len(scraped.samples()) == before


def test_me_01_the_exposition_stays_parseable() -> None:
    scraped = Scraped()
    odd = 'a "quote", a \\ backslash,\na newline' + "x" * 10_000
    scraped(RUN._replace(model=odd, known=True))
    models = {sample.labels["model"] for sample in scraped.samples() if "model" in sample.labels}
    assert models == {odd}


def test_me_01_many_models_and_nodes_share_a_name() -> None:
    scraped = Scraped()
    for number in range(2_000):
        attempts = (Attempt(f"n{number}", "p", "complete"),)
        scraped.metrics.record(RUN._replace(model=f"m{number}", attempts=attempts))
    labels = [sample.labels for sample in scraped.samples()]
    assert len({each["model"] for each in labels if "model" in each}) == MOST_MODELS + 1
    assert len({each["node"] for each in labels if "node" in each}) == MOST_NODES + 1
    seen = scraped()
    assert seen["iop_requests_total", "chat", "_other", "ok"] == 2_000 - MOST_MODELS
    assert seen["iop_requests_total", "chat", "m0", "ok"] == 1


# ---- what is read when somebody looks


def test_live_gauges_show_what_is_there() -> None:
    scraped = Scraped()
    readings = [Reading(names.NODE_UP, ("n1",), 1), Reading(names.LINK_BYTES, ("n1", "in"), 7)]
    scraped.metrics.read = lambda: readings
    seen = scraped()
    assert seen["iop_build_info", iop.__version__, "edge"] == 1
    assert (seen["iop_node_up", "n1"], seen["iop_link_bytes_total", "n1", "in"]) == (1, 7)
    readings.clear()
    assert ("iop_node_up", "n1") not in scraped()


def test_live_gauges_of_many_nodes_are_summed() -> None:
    scraped = Scraped()
    scraped.metrics.read = lambda: [Reading(names.NODE_CAPACITY, (f"n{each}",), 2) for each in range(MOST_NODES + 3)]
    assert scraped()["iop_node_capacity", "_other"] == 6


# ---- the edge itself


def test_refreshes() -> None:
    scraped = Scraped()
    assert scraped()["iop_config_last_reload_success_timestamp_seconds",] == BEGAN
    scraped.now += 60
    scraped.metrics.refreshed("rejected")
    assert scraped()["iop_config_last_reload_success_timestamp_seconds",] == BEGAN
    scraped.metrics.refreshed("applied")
    seen = scraped()
    assert seen["iop_config_reloads_total", "rejected"] == seen["iop_config_reloads_total", "applied"] == 1
    assert seen["iop_config_last_reload_success_timestamp_seconds",] == BEGAN + 60


def test_lag() -> None:
    clock, seen = Clock(), []
    lag = Lag(clock, seen.append)
    lag.startService()
    clock.advance(INTERVAL)
    clock.advance(INTERVAL + 2.0)
    clock.rightNow -= 100  # somebody sets the clock
    clock.calls[0].time -= 200
    clock.advance(0)
    assert seen == pytest.approx([0.0, 2.0, 0.0], abs=1e-6)
    lag.stopService()
    lag.stopService()
    assert clock.calls == []


# ---- what is shown


def test_every_metric_is_there_once_something_has_happened() -> None:
    scraped = Scraped()
    scraped.metrics.read = lambda: (
        [
            Reading(each, ("x",) * len(each.labels), 1)
            for each in names.ALL
            if each.type == "gauge" and each.labels
            if each is not names.BUILD
        ]
        + [Reading(names.LINK_BYTES, ("n", "in"), 1), Reading(names.LEDGER_AWAY, (), 0)]
        + [Reading(names.LEDGER_DROPPED, (), 0)]
    )
    attempts = (Attempt("n", "p", "node_lost"), Attempt("n", "p", "complete"))
    usage = Usage(9, 9)
    scraped.metrics.record(RUN._replace(stream=True, first_ms=1, fallback="parsed", attempts=attempts, usage=usage))
    scraped.metrics.record(Record(BEGAN, "chat", "invalid_api_key", 401))
    scraped.metrics.record(Record(BEGAN, "chat", "queue_full", 429))
    scraped.metrics.refreshed("applied")
    scraped.metrics.lagged(0.1)
    labels: dict[str, set[str]] = {}
    for sample in scraped.samples():
        labels.setdefault(sample.name, set()).update(sample.labels)
    for metric in names.ALL:
        name = metric.name + ("_count" if metric.type == "histogram" else "")
        assert labels[name] == set(metric.labels), metric.name
    assert {"process_resident_memory_bytes", "process_open_fds", "python_info"} <= labels.keys()
    assert not any(name.endswith("_created") for name in labels)


def test_openmetrics_is_spoken_to_who_asks_for_it() -> None:
    metrics = Metrics(lambda: BEGAN)
    text, content_type = metrics.exposition("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")
