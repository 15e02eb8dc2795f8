"""A request that waits for a slot, and one that another provider serves: what its client sees."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doubles import JSON, complete, fail, piece, start, wait, whole
from gateway_in_memory import Answer, Gateway, document, node

from iop.edge.config import load_document
from iop.edge.runs.runs import REMEMBERED_REFUSALS
from iop.errors import Failure

pytestmark = pytest.mark.usefixtures("logged")

COMMENT = b": waiting for a free slot\n\n"
ANSWER = b'{"choices":[{"message":{"content":"hi"}}]}'


def error(answer: Answer) -> tuple[int, Any, bool]:
    return answer.status, answer.code, "retry-after" in answer.headers


def busy(**rest: Any) -> Gateway:
    """Return a gateway of one slot, which is taken."""
    gateway = Gateway(wait, configuration=document(node("n1", "p1", capacity=1), **rest))
    gateway.chat()
    return gateway


def test_a_stream_that_waits_shows_that_it_lives_and_a_document_does_not() -> None:
    """QU-03."""
    gateway = busy()
    stream, plain = gateway.chat(stream=True), gateway.chat()
    gateway.net.run(4.9)
    assert stream.data == b""
    gateway.net.run(6)
    answer = stream.answer
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-cache", "no")
    assert answer.body == COMMENT * 2
    assert plain.data == b""
    gateway.adapter.script = (start(), piece(b"data: 1\n\n"), complete())
    gateway.clients[0].leave()
    gateway.net.run()
    assert stream.answer.body.endswith(b"data: 1\n\n")
    assert stream.answer.whole
    gateway.net.run(20)
    assert stream.answer.body.count(b": waiting") == 2
    assert plain.answer.status == 502, "it is no document"


def test_the_first_comment_comes_after_five_seconds_with_the_answers_head() -> None:
    gateway = busy()
    stream = gateway.chat(stream=True, headers={"x-request-id": "req-5"})
    gateway.net.run(4.99)
    assert stream.data == b""
    gateway.net.run(0.01)
    assert stream.answer.body == COMMENT
    assert stream.answer.headers["x-request-id"] == "req-5"
    gateway.net.run(4.99)
    assert stream.answer.body == COMMENT
    gateway.net.run(0.01)
    assert stream.answer.body == COMMENT * 2


def test_a_stream_that_waits_no_more_is_told_so_no_more() -> None:
    """Its answer may be slow: the backend has it."""
    gateway = busy()
    stream = gateway.chat(stream=True)
    gateway.net.run(6)
    gateway.clients[0].leave()
    gateway.net.run(20)
    assert len(gateway.adapter.runs) == 2
    assert stream.answer.body == COMMENT
    gateway.run.say(start(), piece(b"data: 1\n\n"), complete())
    gateway.run.go()
    gateway.net.run()
    assert (stream.answer.body, stream.answer.whole) == (COMMENT + b"data: 1\n\n", True)
    gateway.assert_idle()


def test_a_stream_that_waits_again_is_told_so_again() -> None:
    made = document(node("n1", "p1", capacity=1), node("n2", "q1", capacity=1))
    gateway = Gateway(wait, configuration=made)
    stream, other = gateway.chat(stream=True), gateway.chat()
    gateway.net.run(20)
    assert stream.data == b""
    gateway.run.say(fail(Failure("rate_limited", "slow down")))
    gateway.run.go()
    gateway.net.run(4.99)
    assert stream.data == b""
    gateway.net.run(5.01)
    assert stream.answer.body == COMMENT * 2
    gateway.machines["n2"].adapter.script = (start(), piece(b"data: 1\n\n"), complete())
    other.leave()
    gateway.net.run(20)
    assert (stream.answer.body, stream.answer.whole) == (COMMENT * 2 + b"data: 1\n\n", True)
    gateway.assert_idle()


@pytest.mark.parametrize("after", [1, 6])
@pytest.mark.parametrize("how", ["leaves", "timeout", "refused", "refused by the backend"])
def test_whichever_way_a_wait_ends_no_timer_is_left(how: str, after: float, logged: Any) -> None:
    """DC-02: leaving during a keep-alive comment timer; ER-03 after_keepalive: an error object, then the end."""
    gateway = busy(provider_pool={"queue_timeout_ms": after * 1000 if how == "timeout" else 0})
    timers = len(gateway.net.waiting)
    stream = gateway.chat(stream=True)
    gateway.net.run(after)
    if how == "leaves":
        stream.leave()
    elif how == "refused":
        made = document(node("n1", "p1", capacity=1), provider_pool={"queue_timeout_ms": 0})
        made["models"] = []
        gateway.pool.commit(gateway.pool.prepare(load_document(made).config))
        gateway.pool.judge()
    elif how == "refused by the backend":
        gateway.adapter.script = (fail(Failure("invalid_value", "no")),)
        gateway.clients[0].leave()
    gateway.net.run(0.1)
    assert gateway.pool.queue.size == 0
    assert len(gateway.net.waiting) <= timers
    gateway.net.run(20)
    if how != "leaves":
        code = {"timeout": "queue_timeout", "refused": "model_not_found"}.get(how, "invalid_value")
        told = stream.answer.events[-1] if after > 5 else stream.answer.body
        assert json.loads(told)["error"]["code"] == code
        assert stream.answer.whole
        assert (stream.answer.status == 200) is (after > 5)
        assert stream.answer.body.startswith(COMMENT) is (after > 5)
    assert not logged.warnings()
    told = {"timeout": "queue_timeout", "refused": "model_not_found", "leaves": "cancelled"}.get(how, "invalid_value")
    assert [record.outcome for record in gateway.records if record.stream] == [told]
    gateway.close()


@pytest.mark.parametrize("script", [(whole(ANSWER),), (start(JSON), piece(ANSWER), complete())])
def test_a_document_where_a_stream_was_begun_is_an_error(script: Any) -> None:
    gateway = busy()
    stream = gateway.chat(stream=True, headers={"x-request-id": "req-6"})
    gateway.net.run(6)
    gateway.adapter.script = script
    gateway.clients[0].leave()
    gateway.net.run()
    assert (stream.answer.status, stream.answer.whole) == (200, True)
    assert json.loads(stream.answer.events[-1])["error"]["code"] == "upstream_error"
    assert ANSWER not in stream.answer.body
    story = gateway.runs.explain("req-6")
    assert story is not None
    assert story["outcome"] == "upstream_error"
    gateway.net.run(20)
    gateway.assert_idle()


def test_a_wait_that_lasts_too_long() -> None:
    gateway = busy(provider_pool={"queue_timeout_ms": 7000})
    stream, plain = gateway.chat(stream=True), gateway.chat()
    gateway.net.run(7)
    assert error(plain.answer) == (503, "queue_timeout", True)
    assert stream.answer.whole
    assert json.loads(stream.answer.events[-1])["error"]["code"] == "queue_timeout"


def test_when_to_come_again_is_measured() -> None:
    """Runs take 7 s, and there is one slot: two of them, if nobody leaves."""
    gateway = busy(provider_pool={"max_queue": 1, "queue_timeout_ms": 30_000})
    gateway.net.run(7)
    gateway.run.say(start(JSON), piece(ANSWER), complete())
    gateway.run.go()
    gateway.net.run()
    gateway.chat()
    waiting, refused = gateway.chat(), gateway.chat()
    assert error(refused.answer) == (429, "queue_full", True)
    assert refused.answer.headers["retry-after"] == "14"
    gateway.net.run(20)
    gateway.run.say(start(JSON), piece(ANSWER), complete())
    gateway.run.go()
    gateway.net.run()
    assert waiting.data == b""
    assert gateway.chat().data == b""
    assert gateway.chat().answer.headers["retry-after"] == "20", "9.6 s lately, 19.2 s for two"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_while_it_waits_leaves_the_queue(stream: bool) -> None:
    """QU-02: it never reaches the backend, and its place is free at once."""
    gateway = busy(provider_pool={"max_queue": 1})
    second = gateway.chat(stream=stream)
    gateway.net.run(6)
    assert gateway.pool.queue.size == 1
    second.leave()
    gateway.net.run()
    third = gateway.chat()
    assert error(gateway.chat().answer) == (429, "queue_full", True)
    gateway.clients[0].leave()
    gateway.net.run()
    assert len(gateway.adapter.runs) == 2
    third.leave()
    gateway.net.run(30)
    gateway.assert_idle()
    assert gateway.pool.queue.size == 0


def two_nodes(*first: Any, second: Any, **rest: Any) -> Gateway:
    gateway = Gateway(*first, configuration=document(node("n1", "p1"), node("n2", "q1"), **rest))
    gateway.machines["n2"].adapter.script = second
    return gateway


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("code", ["upstream_connect", "rate_limited", "adapter_unavailable"])
def test_another_provider_is_asked_before_a_byte(stream: bool, code: str, logged: Any) -> None:
    second = (start(), piece(b"data: 1\n\n"), complete()) if stream else (whole(ANSWER),)
    gateway = two_nodes(fail(Failure(code, "no")), second=second)
    answer = gateway.chat(stream=stream).answer
    assert answer.status == 200
    assert answer.whole
    gateway.assert_idle()
    assert any(f": {code} at p1; another provider is asked" in line for line in logged.lines("info"))


@pytest.mark.parametrize("stream", [False, True])
def test_when_no_provider_is_left_the_first_failure_is_told(stream: bool) -> None:
    """EM-02: a 429 and its Retry-After, not what came after it; a stream has the same status."""
    limited = Failure("rate_limited", "slow down", retry_after_ms=7000)
    gateway = two_nodes(fail(limited), second=(fail(Failure("upstream_connect", "refused")),))
    answer = gateway.chat(stream=stream).answer
    assert (answer.status, answer.headers["retry-after"]) == (429, "7")
    gateway.assert_idle()
    (remembered,) = gateway.runs._ended
    assert (remembered._ask, remembered._answer, remembered.first_failure) == (None, None, None)


def test_a_failure_that_another_provider_would_have_too_is_told_at_once() -> None:
    gateway = two_nodes(fail(Failure("invalid_value", "no")), second=(whole(ANSWER),))
    assert gateway.chat().answer.status == 400
    assert gateway.machines["n2"].adapter.runs == []


def test_a_node_that_is_lost_is_replaced_by_another_while_nothing_has_left_the_edge() -> None:
    gateway = two_nodes(start(JSON), piece(b"{"), wait, second=(whole(ANSWER),))
    client = gateway.chat()
    gateway.machines["n1"].end.cut()
    gateway.net.run()
    assert client.answer.status == 200
    assert not client.answer.body.startswith(b"{{")
    gateway.assert_idle()


def test_the_story_of_a_run() -> None:
    gateway = two_nodes(fail(Failure("upstream_connect", "no")), second=(whole(ANSWER),))
    gateway.chat(headers={"x-request-id": "req-7"})
    story = gateway.runs.explain("req-7")
    assert story is not None
    assert (story["outcome"], story["model"], story["long"]) == ("complete", "m", False)
    assert [(each["provider"], each["outcome"]) for each in story["attempts"]] == [
        ("n1/p1", "upstream_connect"),
        ("n2/q1", "complete"),
    ]
    assert [each["passed_over"] for each in story["steps"][0]["considered"]] == ["", "not_its_turn"]
    assert story["steps"][2]["considered"][-1]["passed_over"] == "ruled_out"
    assert gateway.runs.explain(story["id"]) == story
    assert gateway.runs.explain("another") is None


def test_the_story_of_a_run_on_an_older_route() -> None:
    route = {"model": "old", "adapter": "a", "target": "t"}
    gateway = Gateway(whole(ANSWER), configuration=document(openai={"model_routes": [route]}))
    gateway.net.run(100)
    gateway.chat(model="old", headers={"x-request-id": "req-9"})
    story = gateway.runs.explain("req-9")
    assert story is not None
    assert (story["arrived"], story["total_ms"], story["queued_ms"]) == (gateway.net.seconds(), 0, 0)
    assert [(step["step"], step["provider"], step["at_ms"]) for step in story["steps"]] == [
        ("dispatched", "n1/a", 0),
        ("ended", "n1/a", 0),
    ]
    assert [(each["provider"], each["outcome"]) for each in story["attempts"]] == [("n1/a", "complete")]


def test_a_failure_without_a_code_is_known_by_its_status() -> None:
    gateway = Gateway(fail(Failure("", "I am a teapot", http_status=418)))
    gateway.chat(headers={"x-request-id": "req-10"})
    story = gateway.runs.explain("req-10")
    assert story is not None
    assert (story["outcome"], story["attempts"][0]["outcome"]) == ("418", "418")


def test_what_a_client_made_up_is_neither_logged_nor_remembered_whole(logged: Any) -> None:
    gateway = busy(provider_pool={"max_queue": 1})
    waits = gateway.chat(headers={"x-request-id": "waits"})
    name = "\x1b[31m\n" + "m" * 2_000
    for _ in range(REMEMBERED_REFUSALS + 10):
        assert gateway.chat(model=name).answer.code == "model_not_found"
    assert max(map(len, logged.lines())) < 1000
    assert all(line.isprintable() for line in logged.lines())
    assert len(gateway.runs._refused) == REMEMBERED_REFUSALS
    assert max(len(run.model) for run in gateway.runs._refused) <= 200
    waits.leave()
    gateway.net.run()
    assert gateway.runs.explain("waits") is not None, "refusals drive nobody out"


def test_of_a_long_name_only_a_part_is_kept() -> None:
    gateway = Gateway()
    assert gateway.chat(model="m" * 1_000_000).answer.code == "model_not_found"
    (record,) = gateway.records
    assert (len(record.model), record.known, record.status) == (200, False, 404)


@pytest.mark.parametrize("waiting", [False, True])
def test_the_story_of_a_run_that_the_edge_stopped(waiting: bool) -> None:
    gateway = busy() if waiting else Gateway(wait)
    gateway.chat(headers={"x-request-id": "req-8"})
    for run in list(gateway.runs.active):
        run.stop(Failure("draining", "the edge is shutting down"))
    gateway.net.run()
    story = gateway.runs.explain("req-8")
    assert story is not None
    assert story["outcome"] == "draining"
