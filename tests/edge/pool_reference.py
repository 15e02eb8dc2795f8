"""A second, slow opinion on the provider pool simulator, written from its contract alone.

It steps through time one event at a time, keeps plain lists and looks at everything again after every event. The quoted
sentences are those of the contract; where it is silent the comment says so with "Decided:".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

#: "60 s without any candidate end it with `no_provider`."
NO_CANDIDATE_MS = 60_000

Json = dict[str, Any]


@dataclass
class Run:
    """One request of the trace."""

    id: str
    model: str
    tokens: int
    service_ms: int
    arrived: int
    outcome: str | None = None  # None while it waits or runs
    provider: Json | None = None  # as it was configured at dispatch; only its id and node are used
    node: str | None = None  # where it runs, or ran; a routed run has no provider
    long: bool = False  # "Whether a held lease counts as long was settled when it was taken."
    queued_ms: int = 0
    started_at: int | None = None
    ended_at: int | None = None
    refused: bool = False  # at arrival
    last_candidate: int = 0  # the last moment at which this run, while it waits, had a candidate


@dataclass
class State:
    """Everything the simulation remembers."""

    config: Json
    now: int = 0
    down_nodes: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)  # all that arrived, in trace order
    queue: list[Run] = field(default_factory=list)  # "One arrival-ordered queue for the whole edge."
    running: list[Run] = field(default_factory=list)  # in the order they started
    last_dispatch: dict[str, str] = field(default_factory=dict)  # model -> provider id
    busy: dict[str, int] = field(default_factory=dict)  # "node/provider" -> integral of in_flight
    room: dict[str, int] = field(default_factory=dict)  # "node/provider" -> integral of capacity while enabled
    dispatches: dict[str, int] = field(default_factory=dict)  # "node/provider" -> number of runs
    max_pending: int = 0


# Looking things up


def all_providers(config: Json) -> list[Json]:
    """Every provider of a configuration, each with its node's id under `node`."""
    found: list[Json] = []
    for node in config["nodes"]:
        found += [{**provider, "node": node["id"]} for provider in node["providers"]]
    return found


def full_name(provider: Json) -> str:
    return f"{provider['node']}/{provider['id']}"


def find_model(config: Json, model_id: str) -> Json | None:
    for model in config["models"]:
        if model["id"] == model_id:
            found: Json = model
            return found
    return None


def find_route(config: Json, model_id: str) -> Json | None:
    for route in config.get("routes", []):
        if route["model"] == model_id:
            found: Json = route
            return found
    return None


def providers_of(state: State, model_id: str) -> list[Json]:
    """The providers of a model in the order of the group's list; none for an unknown model."""
    model = find_model(state.config, model_id)
    if model is None:
        return []
    found: list[Json] = []
    for provider_id in model["providers"]:
        found += [provider for provider in all_providers(state.config) if provider["id"] == provider_id]
    return found


def in_flight(state: State, provider: Json) -> int:
    """ "every model group that names the provider shares its slots" """
    count = 0
    for run in state.running:
        if run.provider is not None and run.provider["id"] == provider["id"]:
            count += 1
    return count


def long_in_flight(state: State, provider: Json) -> int:
    """ "normal and long summed over all groups" """
    count = 0
    for run in state.running:
        if run.provider is not None and run.provider["id"] == provider["id"] and run.long:
            count += 1
    return count


# Admission


def is_long(state: State, run: Run) -> bool:
    # "long = estimate >= long_context_threshold_tokens"; "In the simulator `tokens` is exact".
    return bool(run.tokens >= state.config["long_context_threshold_tokens"])


def is_too_large(state: State, run: Run) -> bool:
    # "refused at tokens >= context_window_tokens"; "0 or absent: unset".
    model = find_model(state.config, run.model)
    if model is None or not model["context_window_tokens"]:
        return False
    return bool(run.tokens >= model["context_window_tokens"])


def lacks_long_capacity(state: State, run: Run) -> bool:
    # "A long request when no *enabled* provider of M, up or down, has any long_context_capacity"
    if not is_long(state, run):
        return False
    for provider in providers_of(state, run.model):
        if provider["enabled"] and provider["long_context_capacity"] > 0:
            return False
    return True


def candidates(state: State, run: Run) -> list[Json]:
    # "M's providers that are enabled, whose node is registered"; in a trace that is: not taken down.
    return [
        provider
        for provider in providers_of(state, run.model)
        if provider["enabled"] and provider["node"] not in state.down_nodes
    ]


def free_candidates(state: State, run: Run) -> list[Json]:
    # "A candidate is free when in_flight < capacity, and for a long request also
    # long_in_flight < long_context_capacity."
    found = []
    for provider in candidates(state, run):
        if in_flight(state, provider) >= provider["capacity"]:
            continue
        if is_long(state, run) and long_in_flight(state, provider) >= provider["long_context_capacity"]:
            continue
        found.append(provider)
    return found


def choose(state: State, run: Run, free: list[Json]) -> Json:
    # "Among the free: lowest in_flight;"
    lowest = min(in_flight(state, provider) for provider in free)
    free = [provider for provider in free if in_flight(state, provider) == lowest]
    # "equal: lowest priority number;"
    lowest = min(provider["priority"] for provider in free)
    free = [provider for provider in free if provider["priority"] == lowest]
    # "equal: round robin: the first after the provider this group dispatched to last, in the order of the group's list,
    # cyclic (from the start when that provider is no longer in the list or there was none)." "a disabled or down
    # provider still marks its place": the order is taken from the whole list.
    order = [provider["id"] for provider in providers_of(state, run.model)]
    last = state.last_dispatch.get(run.model)
    if last in order:
        place = order.index(last)
        order = order[place + 1 :] + order[: place + 1]
    for provider_id in order:
        for provider in free:
            if provider["id"] == provider_id:
                return provider
    raise AssertionError("a free provider stands in its group's list")


def dispatch(state: State, run: Run, provider: Json) -> None:
    run.provider = provider
    run.long = is_long(state, run)
    start(state, run, provider["node"])
    # "Every dispatch sets the memory"; "the memory survives a refresh". Decided: also one that removes the model and
    # another one that adds it again.
    state.last_dispatch[run.model] = provider["id"]
    state.dispatches[full_name(provider)] += 1


def start(state: State, run: Run, node: str) -> None:
    run.node = node
    run.started_at = state.now
    run.queued_ms = state.now - run.arrived
    state.running.append(run)


def refuse(state: State, run: Run, outcome: str) -> None:
    # "refused at arrival: queued_ms 0, started_at null". Decided: ended_at is its arrival.
    run.refused = True
    run.outcome = outcome
    run.queued_ms = 0
    run.ended_at = state.now


def arrive(state: State, line: Json) -> None:
    run = Run(line["id"], line["model"], line["tokens"], line["service_ms"], state.now)
    state.runs.append(run)
    route = find_route(state.config, run.model)
    if route is not None:
        follow_route(state, run, route)
        return
    # 1. "M unknown: model_not_found."
    if find_model(state.config, run.model) is None:
        refuse(state, run, "model_not_found")
        return
    # 2. "context_length_exceeded, before any wait."
    if is_too_large(state, run):
        refuse(state, run, "context_length_exceeded")
        return
    # 3. "None at all: no_provider at once, not queued."
    if not candidates(state, run):
        refuse(state, run, "no_provider")
        return
    # 4. "long_context_unavailable."
    if lacks_long_capacity(state, run):
        refuse(state, run, "long_context_unavailable")
        return
    # 5. and 6. Nobody older could take the slot: the queue was scanned after the event before this one.
    free = free_candidates(state, run)
    if free:
        dispatch(state, run, choose(state, run, free))
        return
    # 7. "None free: the request waits, unless max_queue runs wait already in the whole edge: queue_full"
    if len(state.queue) >= state.config["provider_pool"]["max_queue"]:
        refuse(state, run, "queue_full")
        return
    run.last_candidate = state.now
    state.queue.append(run)


def follow_route(state: State, run: Run, route: Json) -> None:
    # "A model_routes run takes no pool slot and never queues: it goes to the named node (else the first connected one
    # in config order) that has that adapter enabled, else no_provider." Decided: a node that is not down is connected.
    for node in state.config["nodes"]:
        if route["node"] is not None and route["node"] != node["id"]:
            continue
        if node["id"] not in state.down_nodes and node["adapters"].get(route["adapter"]):
            start(state, run, node["id"])
            return
    refuse(state, run, "no_provider")


# Queue


def scan(state: State) -> None:
    # "it is scanned from the oldest: each pending run that has a free candidate takes it; one that has none is passed
    # over and keeps its place."
    for run in list(state.queue):
        free = free_candidates(state, run)
        if free:
            state.queue.remove(run)
            dispatch(state, run, choose(state, run, free))


def end_waiting(state: State, run: Run, outcome: str) -> None:
    # "ended while waiting: queued_ms the time waited"; started_at and provider stay null.
    state.queue.remove(run)
    run.outcome = outcome
    run.queued_ms = state.now - run.arrived
    run.ended_at = state.now


def end_running(state: State, run: Run, outcome: str) -> None:
    # "Taken in one step and released exactly once, however the run ends": the lease is the place in `running`.
    state.running.remove(run)
    run.outcome = outcome
    run.ended_at = state.now


def note_candidates(state: State) -> None:
    for run in state.queue:
        if candidates(state, run):
            run.last_candidate = state.now


# The trace's lines


def cancel(state: State, run_id: str) -> None:
    # "Cancelling a finished or unknown run does nothing." Decided: one that has not arrived yet is unknown.
    for run in list(state.queue):
        if run.id == run_id:
            # "A client that hangs up leaves the queue at once."
            end_waiting(state, run, "cancelled")
    for run in list(state.running):
        if run.id == run_id:
            # "a cancelled running run keeps its own [provider]"
            end_running(state, run, "cancelled")


def node_down(state: State, node: str) -> None:
    # "A lost node ends its runs all together, then the queue is scanned." "no failover happens here"
    if node not in state.down_nodes:
        state.down_nodes.append(node)
    for run in list(state.running):
        if run.node == node:
            end_running(state, run, "node_lost")


def node_up(state: State, node: str) -> None:
    if node in state.down_nodes:
        state.down_nodes.remove(node)


def refresh(state: State, config: Json) -> None:
    # "Then the edge swaps its configuration in one step. Leases in hand stay as they are, also where capacity shrank".
    # Decided: nodes that are down stay down.
    state.config = config
    # "A refresh without any change judges pending runs again all the same." "in queue order"
    for run in list(state.queue):
        judge_again(state, run)
    # "More pending than the new max_queue: those waiting stay, new ones are refused."


def judge_again(state: State, run: Run) -> None:
    # "as if it arrived now, except that having no candidate keeps it waiting. In this order:"
    # "a pending run whose model vanished ends with model_not_found;"
    if find_model(state.config, run.model) is None:
        end_waiting(state, run, "model_not_found")
        return
    # "one too large for a shrunken window with context_length_exceeded;"
    if is_too_large(state, run):
        end_waiting(state, run, "context_length_exceeded")
        return
    # "a long one whose group has no long capacity any more with long_context_unavailable;"
    # Decided: "no long capacity" is that of admission, so it counts enabled providers only, and a group without any
    # enabled provider has none. What is long follows the new threshold.
    if lacks_long_capacity(state, run):
        end_waiting(state, run, "long_context_unavailable")
        return
    # "one whose wait has reached the new queue_timeout_ms with queue_timeout." "0 means no limit."
    timeout = state.config["provider_pool"]["queue_timeout_ms"]
    if timeout > 0 and state.now - run.arrived >= timeout:
        end_waiting(state, run, "queue_timeout")


# Time


def due_events(state: State, lines: list[Json]) -> list[tuple[int, int, int, str]]:
    """Whatever is known to happen, as (time, rank among equal times, place within the rank, what)."""
    due = []
    # "Events at the same time: completions first (in the order the runs started),"
    for place, run in enumerate(state.running):
        assert run.started_at is not None
        # "service_ms >= 1 and counted from dispatch"
        due.append((run.started_at + run.service_ms, 0, place, "completion"))
    # "then queue timeouts (oldest first),"; "A wait that reaches queue_timeout_ms ends"; "0 means no limit."
    timeout = state.config["provider_pool"]["queue_timeout_ms"]
    if timeout > 0:
        for place, run in enumerate(state.queue):
            due.append((run.arrived + timeout, 1, place, "queue timeout"))
    # "then runs 60 s without a candidate (oldest first),"
    for place, run in enumerate(state.queue):
        if not candidates(state, run):
            due.append((run.last_candidate + NO_CANDIDATE_MS, 2, place, "no candidate"))
    # "then the trace's lines in file order;"
    if lines:
        due.append((lines[0]["at"], 3, 0, "line"))
    return due


def pass_time(state: State, until: int) -> None:
    """Move to a moment; up to it nothing changed, so the integrals grow by rectangles."""
    for provider in all_providers(state.config):
        name = full_name(provider)
        state.busy[name] += in_flight(state, provider) * (until - state.now)
        if provider["enabled"]:
            state.room[name] += provider["capacity"] * (until - state.now)
    state.now = until


def follow(state: State, line: Json, configs: dict[str, Json]) -> None:
    op = line.get("op")
    if op is None:
        arrive(state, line)
    elif op == "cancel":
        cancel(state, line["id"])
    elif op == "node_down":
        node_down(state, line["node"])
    elif op == "node_up":
        node_up(state, line["node"])
    elif op == "refresh":
        refresh(state, configs[line["config"]])
    else:
        raise ValueError(f"no such operation: {op}")


# The answer


def percentile(values: list[int], percent: int) -> int:
    # Decided: nearest rank, 0 when there is no value.
    if not values:
        return 0
    rank = math.ceil(percent * len(values) / 100)
    return sorted(values)[rank - 1]


def report(state: State) -> Json:
    runs = []
    outcomes: dict[str, int] = {}
    for run in state.runs:
        assert run.outcome is not None
        outcomes[run.outcome] = outcomes.get(run.outcome, 0) + 1
        runs.append(
            {
                "id": run.id,
                "outcome": run.outcome,
                "provider": None if run.provider is None else full_name(run.provider),
                "queued_ms": run.queued_ms,
                "started_at": run.started_at,
                "ended_at": run.ended_at,
            }
        )
    providers = {}
    for name, room in state.room.items():
        used = 0.0 if room == 0 else round(state.busy[name] / room, 4)
        providers[name] = {"utilisation": used, "runs": state.dispatches[name]}
    # Decided: percentiles are over the runs that were dispatched at once or waited, however they ended.
    waits = [run.queued_ms for run in state.runs if not run.refused]
    return {
        "runs": runs,
        "summary": {
            "outcomes": outcomes,
            "providers": providers,
            "queued_ms": {
                "p50": percentile(waits, 50),
                "p95": percentile(waits, 95),
                "p99": percentile(waits, 99),
                "max": max(waits, default=0),
            },
            "max_pending": state.max_pending,
        },
    }


def reference(config: Json, trace: list[Json], configs: dict[str, Json]) -> Json:
    """What the simulator should answer for a valid trace.

    `config` and the values of `configs` are normalized configurations; a `refresh` line's `config` is a
    key of `configs`. Where `routes` are, each node says under `adapters` which it has, and whether they are enabled.
    """
    state = State(config)  # "All nodes are up at 0 unless told otherwise."
    for provider in all_providers(config):
        state.busy[full_name(provider)] = 0
        state.room[full_name(provider)] = 0
        state.dispatches[full_name(provider)] = 0
    lines = list(trace)
    while True:
        due = due_events(state, lines)
        if not due:
            break
        at, _rank, place, what = min(due)
        pass_time(state, at)
        note_candidates(state)  # as it was up to this moment
        if what == "completion":
            end_running(state, state.running[place], "complete")
        elif what == "queue timeout":
            end_waiting(state, state.queue[place], "queue_timeout")
        elif what == "no candidate":
            end_waiting(state, state.queue[place], "no_provider")
        else:
            follow(state, lines.pop(0), configs)
        scan(state)  # "the queue is scanned after each"
        note_candidates(state)  # as it is after this event
        state.max_pending = max(state.max_pending, len(state.queue))
    # "waiting (still pending when nothing more can happen)"
    for run in state.queue:
        run.outcome = "waiting"
        run.queued_ms = state.now - run.arrived
    return report(state)
