"""Text for people: a pool and its queue, a simulation, the story of a run, in lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from iop.cli.text import Paint
from iop.errors import printable

#: Ends that are no refusal.
_NOT_REFUSED: Final = ("complete", "cancelled", "waiting", "node_lost")


def table(rows: Sequence[Sequence[Any]], *, numbers_from: int = 1) -> Iterator[str]:
    """Columns; those from ``numbers_from`` on to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(
            cell.ljust(width) if index < numbers_from else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()


def milliseconds(value: float) -> str:
    """As people read it."""
    return f"{value:.0f} ms" if value < 1000 else f"{value / 1000:.1f} s"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


# ---- simulations ------------------------------------------------------------------------------------------------


def simulated(document: Mapping[str, Any], coloured: Paint) -> Iterator[str]:
    """A simulation's document."""
    summary = document["summary"]
    outcomes = summary["outcomes"]
    total = sum(outcomes.values())
    complete = outcomes.get("complete", 0)
    yield coloured(f"{total} runs, {complete} complete", "bold")
    for outcome, count in outcomes.items():
        if outcome != "complete":
            kind = "" if outcome in _NOT_REFUSED else "refused: "
            yield f"  {kind}{outcome}: {count} ({_percent(count / total)})"
    yield "waits: " + ", ".join(f"{name} {milliseconds(ms)}" for name, ms in summary["queued_ms"].items())
    yield f"most waiting at one time: {summary['max_pending']}"
    rows: list[Sequence[Any]] = [("provider", "runs", "utilisation")]
    rows += [(name, each["runs"], _percent(each["utilisation"])) for name, each in summary["providers"].items()]
    yield from table(rows)


def sweep(documents: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One row for each combination of capacities."""
    names = list(documents[0]["capacities"])
    rows: list[Sequence[Any]] = [
        (*names, "complete", "refused", "p50", "p95", "p99", "most waiting", *[f"{name} used" for name in names])
    ]
    for document in documents:
        summary = document["summary"]
        outcomes, waits = summary["outcomes"], summary["queued_ms"]
        rows.append(
            (
                *document["capacities"].values(),
                outcomes.get("complete", 0),
                sum(count for outcome, count in outcomes.items() if outcome not in _NOT_REFUSED),
                *[milliseconds(waits[name]) for name in ("p50", "p95", "p99")],
                summary["max_pending"],
                *[_percent(summary["providers"][name]["utilisation"]) for name in names],
            )
        )
    yield from table(rows, numbers_from=0)


# ---- the running edge -------------------------------------------------------------------------------------------


def status(document: Mapping[str, Any], coloured: Paint) -> Iterator[str]:
    """A pool's status."""
    timeout = document["queue_timeout_ms"]
    limit = f"for {milliseconds(timeout)} at most" if timeout else "without limit"
    yield coloured(f"{document['queued']} of {document['max_queue']} waiting", "bold") + f", {limit}"
    rows: list[Sequence[Any]] = [
        ("provider", "status", "health", "slots", "waiting", "long", "long waiting", "priority")
    ]
    rows += [
        (
            f"{each['node_id']}/{each['provider_id']}",
            each["status"],
            each["health"],
            f"{each['in_flight']}/{each['capacity']}",
            each["queued"],
            f"{each['long_in_flight']}/{each['long_context_capacity']}",
            each["long_queued"],
            each["priority"],
        )
        for each in document["providers"]
    ]
    yield from table(rows, numbers_from=3)
    for name, why in document["reasons"].items():
        yield f"{name}: {printable(why)}"
    for model in document["models"]:
        if model["queued"]:
            longest = milliseconds(model["longest_wait_ms"])
            yield f"model {model['id']}: {model['queued']} waiting, the longest for {longest}"


def explained(document: Mapping[str, Any], coloured: Paint) -> Iterator[str]:
    """The story of a run."""
    length = f"about {document['tokens']} tokens{', long' if document['long'] else ''}"
    yield coloured(f"{document['id']}: {printable(document['outcome'])}", "bold")
    yield f"model {printable(document['model'])}, {length}, request {document['request_id'] or '-'}"
    yield f"waited {milliseconds(document['queued_ms'])} of {milliseconds(document['total_ms'])}"
    for step in document["steps"]:
        at = f"{milliseconds(step['at_ms']):>8}"
        if step["step"] == "ended":
            yield f"{at}  {step['provider'] or 'its node'}: {printable(step['outcome'])}"
            continue
        yield f"{at}  " + (f"sent to {step['provider']}" if step["provider"] else "no slot is free")
        for each in step["considered"]:
            why = each["passed_over"].replace("_", " ") or "taken"
            yield f"{'':10}{each['provider']}: {why} ({each['in_flight']} in flight, priority {each['priority']})"
