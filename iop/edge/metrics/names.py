"""Every metric, named once: its type, its meaning, its labels. Pure.

Base units; counters end in ``_total``. No label has a value that a client can choose. The buckets are those of
OpenTelemetry's GenAI conventions and of the backends, so that figures of both sides can be laid over each other.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Named(NamedTuple):
    """A metric.

    :ivar type: ``counter``, ``gauge`` or ``histogram``.
    :ivar buckets: upper bounds of a histogram, in seconds.
    """

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_DURATION: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 300, 1200)
_FIRST: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0),
)
_PER_TOKEN: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)
_QUEUE: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0)
_LAG: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

# ---- requests that are over -----------------------------------------------------------------------------------------

REQUESTS: Final = Named("iop_requests_total", "counter", "Requests that are over.", ("op", "model", "outcome"))
DURATION: Final = Named(
    "iop_request_duration_seconds",
    "histogram",
    "From the whole request to the end of its answer.",
    ("op", "model"),
    _DURATION,
)
FIRST: Final = Named(
    "iop_time_to_first_token_seconds",
    "histogram",
    "From the whole request to the first piece of a streamed answer.",
    ("op", "model"),
    _FIRST,
)
PER_TOKEN: Final = Named(
    "iop_time_per_output_token_seconds",
    "histogram",
    "Time between two tokens of a streamed answer, on average.",
    ("op", "model"),
    _PER_TOKEN,
)
QUEUE: Final = Named("iop_queue_duration_seconds", "histogram", "Waited for a slot.", ("model",), _QUEUE)
INPUT: Final = Named("iop_input_tokens_total", "counter", "Input tokens.", ("model", "cache"))
OUTPUT: Final = Named("iop_output_tokens_total", "counter", "Output tokens.", ("model", "phase"))
REJECTIONS: Final = Named(
    "iop_admission_rejections_total", "counter", "Requests that no provider was asked about.", ("reason",)
)
ATTEMPTS: Final = Named(
    "iop_dispatch_attempts_total", "counter", "Runs sent to a node, each time they were.", ("node", "outcome")
)
RETRIES: Final = Named("iop_retries_total", "counter", "Runs sent to another provider after one failed.", ("reason",))
FALLBACK: Final = Named(
    "iop_tool_call_fallback_total", "counter", "Runs whose tools travelled as text.", ("model", "outcome")
)
AUTH: Final = Named("iop_auth_failures_total", "counter", "Requests refused at the door.", ("surface", "reason"))

# ---- as it is when somebody looks -----------------------------------------------------------------------------------

BUILD: Final = Named("iop_build_info", "gauge", "Always 1.", ("version", "component"))
IN_FLIGHT: Final = Named("iop_requests_in_flight", "gauge", "Runs that have a provider.", ("model",))
QUEUED: Final = Named("iop_requests_queued", "gauge", "Runs that wait for a slot.", ("model",))
NODES: Final = Named("iop_nodes", "gauge", "Configured nodes.", ("state",))
NODE_UP: Final = Named("iop_node_up", "gauge", "Whether runs may go there.", ("node",))
NODE_IN_FLIGHT: Final = Named("iop_node_in_flight", "gauge", "Slots of its providers that are taken.", ("node",))
NODE_CAPACITY: Final = Named("iop_node_capacity", "gauge", "Slots of its enabled providers.", ("node",))
REPLICAS: Final = Named("iop_model_replicas", "gauge", "Enabled providers of a model.", ("model", "state"))
LINK_BYTES: Final = Named(
    "iop_link_bytes_total", "counter", "Bytes of frames on a node's present link.", ("node", "direction")
)

LEDGER_AWAY: Final = Named("iop_ledger_away", "gauge", "Whether the ledger's database takes nothing at the moment.")
LEDGER_DROPPED: Final = Named("iop_ledger_dropped_rows_total", "counter", "Rows of usage that are lost.")

# ---- the edge itself ------------------------------------------------------------------------------------------------

RELOADS: Final = Named("iop_config_reloads_total", "counter", "Refreshes that were to be applied.", ("outcome",))
RELOADED: Final = Named(
    "iop_config_last_reload_success_timestamp_seconds", "gauge", "When the configuration in force was loaded."
)
LAG: Final = Named("iop_event_loop_lag_seconds", "histogram", "How late a timer of the edge was.", (), _LAG)

ALL: Final[tuple[Named, ...]] = (
    *(REQUESTS, DURATION, FIRST, PER_TOKEN, QUEUE, INPUT, OUTPUT, REJECTIONS, ATTEMPTS, RETRIES, FALLBACK, AUTH),
    *(BUILD, IN_FLIGHT, QUEUED, NODES, NODE_UP, NODE_IN_FLIGHT, NODE_CAPACITY, REPLICAS, LINK_BYTES),
    *(LEDGER_AWAY, LEDGER_DROPPED),
    *(RELOADS, RELOADED, LAG),
)
