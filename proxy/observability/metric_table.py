"""Every metric there is, as data: names, labels and what each counts; the guide shows this table.

All labels are bounded: `model` is the name of a configured service or "other", `client` that of an
API key or "other", and every other value comes from a closed list of our own. Names and units
follow Prometheus' conventions.
"""

from dataclasses import dataclass
from typing import Literal

_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_OVERHEAD = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
_TOKENS = (256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144)


@dataclass(frozen=True, slots=True, eq=False)  # it is a key of dictionaries at each call
class Metric:
    """One metric; `buckets` are the upper bounds of a histogram."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ("model",)
    buckets: tuple[float, ...] = ()

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


REQUESTS = Metric(
    "temper_requests_total",
    "chat requests that are over, by the language of their clients (chat, messages, responses); "
    "status 499 is a client that left, outcome none no answer",
    ("model", "dialect", "status", "outcome"),
)
DURATION = Metric(
    "temper_request_duration_seconds",
    "time from the arrival of a request to the end of its answer",
    buckets=_SECONDS,
)
FIRST_TOKEN = Metric(
    "temper_time_to_first_token_seconds",
    "time from the arrival of a request to the first text or call for its client",
    buckets=_SECONDS,
)
OVERHEAD = Metric(
    "temper_overhead_seconds",
    "time of a request that was spent neither in the queue nor while the backend worked on it",
    buckets=_OVERHEAD,
)
QUEUED = Metric(
    "temper_queue_duration_seconds",
    "time that a request waited for a slot of the backend, or for its model to be loaded",
    buckets=_SECONDS,
)
ATTEMPTS = Metric(
    "temper_attempts_total",
    "generations by why they were asked for (as_asked, raw, nudged, constrained, answer) and what "
    "came of them (accepted, rejected, failed, cancelled)",
    ("model", "reason", "result"),
)
REJECTIONS = Metric(
    "temper_rejected_replies_total",
    "replies that were not good enough, by what was wrong with them",
    ("model", "defect"),
)
BROKEN_OFF = Metric(
    "temper_broken_off_calls_total",
    "calls that clients had seen the beginning of and that never became valid ones",
)
WITHHELD = Metric(
    "temper_withheld_attempts_total",
    "attempts that were due but not made, as too many requests were being asked again",
)
RESCUES = Metric(
    "temper_rescued_calls_total",
    "calls that were text and became calls, by the syntax they were written in",
    ("model", "syntax"),
)
REPAIRS = Metric(
    "temper_repairs_total",
    "other repairs of replies: broken JSON (repaired), types (coerced), names (renamed), parts "
    "left out (dropped)",
    ("model", "kind"),
)
REFUSALS = Metric(
    "temper_refused_calls_total",
    "texts that looked like a call and were left alone, by why",
    ("model", "reason"),
)
HEALINGS = Metric(
    "temper_healings_total",
    "things broken in the conversations that came in and were mended, by what it was",
    ("model", "what"),
)
OMISSIONS = Metric(
    "temper_omissions_total",
    "parts of requests that mean nothing here and were left out, by what they were",
    ("model", "what"),
)
COMPACTIONS = Metric(
    "temper_compactions_total",
    "cuts that were made to keep a conversation inside the window, by how deep they went",
    ("model", "tier"),
)
CONTEXT = Metric(
    "temper_context_tokens", "length of the prompts as they were sent, in tokens", buckets=_TOKENS
)
TOKENS = Metric(
    "temper_tokens_total",
    "tokens of the answers that clients got: input, the cached part of it, and output",
    ("model", "type"),
)
CLIENT_REQUESTS = Metric(
    "temper_client_requests_total",
    "requests that are over, by the name of the API key that was sent; nothing where there are no "
    "keys, and other from the 200th name on",
    ("client", "outcome"),
)
CLIENT_TOKENS = Metric(
    "temper_client_tokens_total",
    "tokens of the answers that the owner of an API key got: input, the cached part of it, and "
    "output",
    ("client", "type"),
)
CANCELLED = Metric(
    "temper_cancelled_requests_total",
    "requests whose client left, by when: receiving, queued, before_first_token, "
    "between_attempts, streaming",
    ("model", "phase"),
)
BACKEND_ERRORS = Metric(
    "temper_backend_errors_total",
    "attempts that a backend failed: unavailable, loading, timed_out, refused, nonsense, "
    "context_overflow, invalid_request, failed",
    ("model", "kind"),
)
WAITING = Metric("temper_requests_waiting", "requests that wait for a slot or a model now")
RUNNING = Metric("temper_requests_running", "requests that the backend works on now")
CACHE = Metric(
    "temper_kv_cache_usage_ratio",
    "share of the room of all slots that the prompts of running requests take (an estimate)",
)
UP = Metric(
    "temper_backend_up", "1 if the backend would answer now, else 0; asked when metrics are read"
)
RESTARTS = Metric(
    "temper_backend_restarts",
    "times that a managed server was started again since it was wanted, 0 for any other",
)
UNSTORED = Metric(
    "temper_unstored_responses_total",
    "answers of /v1/responses that were given and not stored, by what was wrong with the file: "
    "locked, full, damaged, unwritable, slow; or kept by one replica only, as the shared state was "
    "not there (unshared), or they are too large for it (too_large)",
    ("reason",),
)
STATE_UP = Metric(
    "temper_state_up",
    "1 if the store that replicas share (state.url) takes and gives, else 0, as it was last seen",
    ("server",),
)
STATE_ERRORS = Metric(
    "temper_state_errors_total",
    "operations that this store did not carry out: ping, claim, renew, finish, release, look_up, "
    "keep, use, prolong, forget",
    ("operation",),
)
TOOL_CALLS = Metric(
    "temper_tool_calls_total",
    "calls of the operator's tools by their server and by how they ended: done, failed, refused, "
    "timed_out, cancelled, lost",
    ("server", "result"),
)
TOOL_DURATION = Metric(
    "temper_tool_duration_seconds",
    "time that calls of the operator's tools took, by their server",
    ("server",),
    buckets=_SECONDS,
)
TOOL_SERVER_UP = Metric(
    "temper_tool_server_up",
    "1 if the tool server is ready, else 0; looked at when metrics are read",
    ("server",),
)
ROUNDS = Metric("temper_rounds_total", "rounds in which tools of the operator were run")

METRICS = tuple(one for one in vars().copy().values() if isinstance(one, Metric))
