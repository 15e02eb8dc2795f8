"""Random configurations and traces for the provider pool simulator, made to meet its corners often.

Times are multiples of 10, so that completions, queue timeouts and arrivals fall on the same moment. A random
configuration is in the normalized shape; `as_yaml_document` makes a file of it.
"""

from __future__ import annotations

import copy
import random
from typing import Any

Json = dict[str, Any]

MODELS = ["m1", "m2", "m3", "m4", "m5"]
UNKNOWN_MODEL = "nobodys"
THRESHOLDS = [1, 100, 1000, 1000, 1000, 5000]
WINDOWS = [None, None, None, 0, 0, 100, 1000, 1001, 2000, 6000, 6000]
TIMEOUTS = [0, 0, 0, 0, 10, 20, 30, 50, 100, 100, 200, 500, 1000, 30_000, 60_000, 60_010, 90_000]
SERVICES = [10, 10, 20, 30, 50, 100, 100, 200, 300, 500, 1000, 3000, 30_000, 60_000, 100_000]
STEPS = [0, 0, 0, 0, 10, 10, 10, 20, 30, 50, 100, 200]
OUTAGES = [59_980, 59_990, 60_000, 60_010, 61_000, 120_000]

#: Adapters that older routes may name; a node has some of them, and some of those are not enabled.
ROUTED_ADAPTERS = ["b", "c"]

#: The name every provider serves. It is the same for all, because what a provider serves cannot change in a live
#: refresh while the groups that use it can.
TARGET = "t"


def random_case(rng: random.Random) -> tuple[Json, list[Json], dict[str, Json]]:
    """A valid configuration, a valid trace for it, and the configurations its refreshes name (only live changes)."""
    config = _config(rng)
    case = _Case(rng, config)
    length = rng.randint(5, 60)
    while len(case.trace) < length:
        case.step()
    return config, case.trace[:length], case.configs


def with_routes(rng: random.Random, config: Json, trace: list[Json], configs: dict[str, Json]) -> None:
    """Give a case older routes, which a live refresh cannot change, and let some of its runs ask for them."""
    adapters = [{name: rng.random() < 0.6 for name in ROUTED_ADAPTERS if rng.random() < 0.8} for _ in config["nodes"]]
    routes = []
    for name in ROUTED_ADAPTERS:
        having = [node["id"] for node, has in zip(config["nodes"], adapters, strict=True) if has.get(name)]
        if having:
            routes.append({"model": f"any-{name}", "adapter": name, "node": None})
            routes.append({"model": f"one-{name}", "adapter": name, "node": rng.choice(having)})
    for each in (config, *configs.values()):
        each["routes"] = routes
        for node, has in zip(each["nodes"], adapters, strict=True):
            node["adapters"] = has
    for line in trace:
        if routes and "model" in line and rng.random() < 0.4:
            line["model"] = rng.choice(routes)["model"]


def as_yaml_document(config: Json) -> Json:
    """A whole edge configuration that normalizes to `config`."""
    nodes = []
    for node in config["nodes"]:
        providers = [
            {
                **provider,
                "type": "ollama",
                "category": "local_inference",
                "adapter": "a",
                "models": [TARGET],
            }
            for provider in node["providers"]
        ]
        nodes.append(
            {
                "id": node["id"],
                "token": f"token-of-{node['id']}",
                "adapters": [
                    {"name": name, "enabled": enabled, "type": "ollama", "base_url": "http://127.0.0.1:1"}
                    for name, enabled in {"a": True, **node.get("adapters", {})}.items()
                ],
                "providers": providers,
            }
        )
    models = []
    for model in config["models"]:
        entry: Json = {
            "id": model["id"],
            "providers": [{"id": provider, "target": TARGET} for provider in model["providers"]],
        }
        if model["context_window_tokens"] is not None:
            entry["context_window_tokens"] = model["context_window_tokens"]
        models.append(entry)
    routes = [{**route, "target": TARGET} for route in config.get("routes", [])]
    return {
        "edge": {"id": "e"},
        "openai": {"allow_anonymous": True, "model_routes": routes} if routes else None,
        "long_context_threshold_tokens": config["long_context_threshold_tokens"],
        "provider_pool": dict(config["provider_pool"]),
        "nodes": nodes,
        "models": models,
    }


# Configurations


def _config(rng: random.Random) -> Json:
    count = rng.choice([1, 2, 2, 3])
    number = 0
    nodes = []
    for index in range(count):
        providers = []
        for _ in range(rng.choice([1, 1, 2, 2, 3]) if index == 0 else rng.choice([0, 1, 1, 2, 2])):
            number += 1
            providers.append(_provider(rng, f"p{number}"))
        nodes.append({"id": f"n{index + 1}", "providers": providers})
    config: Json = {
        "long_context_threshold_tokens": rng.choice(THRESHOLDS),
        "provider_pool": {"max_queue": rng.randint(1, 4), "queue_timeout_ms": rng.choice(TIMEOUTS)},
        "nodes": nodes,
        "models": [],
    }
    for name in MODELS[: rng.choice([1, 2, 2, 3, 3, 4])]:
        config["models"].append(_model(rng, config, name))
    return config


def _provider(rng: random.Random, name: str) -> Json:
    capacity = rng.choice([1, 1, 1, 2, 2, 3])
    return {
        "id": name,
        "enabled": rng.random() < 0.9,
        "capacity": capacity,
        "long_context_capacity": rng.choice([0, min(1, capacity), rng.randint(0, capacity)]),
        "priority": rng.choice([0, 0, 0, 1, 2]),
    }


def _providers(config: Json) -> list[Json]:
    return [provider for node in config["nodes"] for provider in node["providers"]]


def _group(rng: random.Random, config: Json) -> list[str]:
    """Provider ids of a model in any order; most groups are large, so that they share, and a rare one is empty."""
    names = [provider["id"] for provider in _providers(config)]
    rng.shuffle(names)
    if rng.random() < 0.03:
        return []
    return names[: rng.choice([len(names), len(names), rng.randint(1, len(names))])]


def _model(rng: random.Random, config: Json, name: str) -> Json:
    return {"id": name, "providers": _group(rng, config), "context_window_tokens": rng.choice(WINDOWS)}


# Live changes


def _changed(rng: random.Random, config: Json) -> Json:
    """A copy with some live changes, at times none."""
    config = copy.deepcopy(config)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3, 5])):
        change = rng.choice([_change_provider, _change_provider, _change_provider, _change_model, _change_policy])
        change(rng, config)
    return config


def _change_provider(rng: random.Random, config: Json) -> None:
    provider = rng.choice(_providers(config))
    what = rng.choice(["shrink", "shrink", "raise", "raise", "long", "long", "priority", "enabled", "enabled"])
    if what == "shrink":
        provider["capacity"] = rng.randint(1, provider["capacity"])
        provider["long_context_capacity"] = min(provider["long_context_capacity"], provider["capacity"])
    elif what == "raise":
        provider["capacity"] += rng.randint(1, 3)
    elif what == "long":
        provider["long_context_capacity"] = rng.choice([0, rng.randint(0, provider["capacity"])])
    elif what == "priority":
        provider["priority"] = rng.randint(0, 2)
    else:
        provider["enabled"] = not provider["enabled"]


def _change_model(rng: random.Random, config: Json) -> None:
    models = config["models"]
    absent = [name for name in MODELS if name not in [model["id"] for model in models]]
    what = rng.choice(["add", "add", "remove", "group", "group", "turn", "window", "window", "reorder models"])
    if what == "add" and absent:
        models.append(_model(rng, config, rng.choice(absent)))
    elif not models:
        return
    elif what == "remove":
        models.remove(rng.choice(models))
    elif what == "group":
        rng.choice(models)["providers"] = _group(rng, config)
    elif what == "turn":
        rng.choice(models)["providers"].reverse()
    elif what == "window":
        rng.choice(models)["context_window_tokens"] = rng.choice(WINDOWS)
    else:
        rng.shuffle(models)


def _change_policy(rng: random.Random, config: Json) -> None:
    what = rng.choice(["threshold", "max_queue", "queue_timeout_ms", "queue_timeout_ms"])
    if what == "threshold":
        config["long_context_threshold_tokens"] = rng.choice(THRESHOLDS)
    elif what == "max_queue":
        config["provider_pool"]["max_queue"] = rng.randint(1, 4)
    else:
        config["provider_pool"]["queue_timeout_ms"] = rng.choice(TIMEOUTS)


# Traces


class _Case:
    """A trace as it grows, and what later lines need to know of earlier ones."""

    def __init__(self, rng: random.Random, config: Json) -> None:
        self.rng = rng
        self.now = rng.choice([0, 0, 0, 10, 50])
        self.current = config
        self.configs: dict[str, Json] = {"same.yaml": copy.deepcopy(config)}
        self.trace: list[Json] = []
        self.down: list[str] = []
        self.arrived = 0
        # Each case has its own mood: one is mostly arrivals, one is full of refreshes, one of lost nodes.
        self.steps = rng.choice([STEPS, STEPS, [0, 10], [0, 50, 100, 500], [0, 0, 0, 100]])
        self.services = rng.choice(
            [SERVICES, SERVICES, [10, 20, 50], [100, 100, 200], [500, 1000], [1000, 30_000, 100_000]]
        )
        self.short = rng.choice([0.1, 0.3, 0.6])  # how many are short for certain
        self.moves = [self.run, self.cancel, self.lose_node, self.return_node, self.refresh, self.outage]
        self.weights = rng.choice(
            [
                [70, 8, 4, 8, 8, 1],
                [90, 4, 1, 3, 3, 0],
                [60, 5, 3, 6, 28, 0],
                [60, 5, 10, 20, 4, 1],
                [60, 25, 5, 5, 5, 0],
                [66, 4, 4, 10, 12, 5],
            ]
        )

    def step(self) -> None:
        self.rng.choices(self.moves, self.weights)[0]()
        self.now += self.rng.choice(self.steps)
        if self.rng.random() < 0.01:
            self.now += self.rng.choice(OUTAGES)

    def line(self, **what: Any) -> None:
        self.trace.append({"at": self.now, **what})

    def run(self) -> None:
        known = [model["id"] for model in self.current["models"]]
        name = (
            self.rng.choice(known) if known and self.rng.random() < 0.95 else self.rng.choice([*MODELS, UNKNOWN_MODEL])
        )
        self.arrived += 1
        service = self.rng.choice(self.services)
        self.line(id=f"r{self.arrived}", model=name, tokens=self._tokens(name), service_ms=service)

    def _tokens(self, name: str) -> int:
        threshold = self.current["long_context_threshold_tokens"]
        edges = [1, threshold - 1, threshold - 1, threshold, threshold, threshold]
        for model in self.current["models"]:
            if model["id"] == name and model["context_window_tokens"]:
                window = model["context_window_tokens"]
                edges += [window - 1, window - 1, window]
        if self.rng.random() < self.short:
            return 1
        return max(1, int(self.rng.choice(edges)))

    def cancel(self) -> None:
        recent = self.arrived - self.rng.choice([0, 0, 1, 1, 2, 3, 5, 10])
        anywhere = self.rng.randint(1, self.arrived + 5)  # may not have arrived yet
        number = self.rng.choice([recent, recent, recent, anywhere])
        self.line(op="cancel", id=f"r{number}" if number > 0 else "nobody")

    def lose_node(self) -> None:
        self._lose(self.rng.choice(self.current["nodes"])["id"])

    def _lose(self, node: str) -> None:
        self.line(op="node_down", node=node)  # at times one that is down already
        if node not in self.down:
            self.down.append(node)

    def return_node(self) -> None:
        self._return(self.rng.choice(self.down or [node["id"] for node in self.current["nodes"]]))

    def _return(self, node: str) -> None:
        self.line(op="node_up", node=node)  # at times one that is up already
        if node in self.down:
            self.down.remove(node)

    def refresh(self) -> None:
        if self.rng.random() < 0.2:
            name = self.rng.choice(sorted(self.configs))
        else:
            name = f"c{len(self.configs)}.yaml"
            self.configs[name] = _changed(self.rng, self.current)
        self.current = self.configs[name]
        self.line(op="refresh", config=name)

    def outage(self) -> None:
        """All nodes of one model vanish, around the time after which a run that waits for them gives up."""
        if not self.current["models"]:
            return
        model = self.rng.choice(self.current["models"])
        for node in self.current["nodes"]:
            if any(provider["id"] in model["providers"] for provider in node["providers"]):
                self._lose(node["id"])
                self.now += self.rng.choice([0, 0, 0, 10])
        if self.rng.random() < 0.3:
            # The wait for a candidate begins anew, even when one came only for a moment.
            self.now += self.rng.choice([10, 30_000, 59_990])
            node = self.rng.choice(self.down or [self.current["nodes"][0]["id"]])
            self._return(node)
            self.now += self.rng.choice([0, 0, 10])
            self._lose(node)
        if self.rng.random() < 0.2:
            self.refresh()
        self.now += self.rng.choice(OUTAGES)
        for node in list(self.down):
            if self.rng.random() < 0.7:
                self._return(node)
