"""Every metric: names, labels and meanings are in `metrics.toml`."""

from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

import msgspec


@dataclass(frozen=True, slots=True, eq=False)  # used as a key of dictionaries for each call
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


class _Table(msgspec.Struct):
    metrics: tuple[Metric, ...]


_FILE = files("proxy.observability") / "metrics.toml"
METRICS = msgspec.toml.decode(_FILE.read_bytes(), type=_Table).metrics
_BY_NAME = {one.name: one for one in METRICS}

REQUESTS = _BY_NAME["temper_requests_total"]
DURATION = _BY_NAME["temper_request_duration_seconds"]
FIRST_TOKEN = _BY_NAME["temper_time_to_first_token_seconds"]
OVERHEAD = _BY_NAME["temper_overhead_seconds"]
QUEUED = _BY_NAME["temper_queue_duration_seconds"]
ATTEMPTS = _BY_NAME["temper_attempts_total"]
REJECTIONS = _BY_NAME["temper_rejected_replies_total"]
BROKEN_OFF = _BY_NAME["temper_broken_off_calls_total"]
WITHHELD = _BY_NAME["temper_withheld_attempts_total"]
CHECKS = _BY_NAME["temper_close_out_checks_total"]
RESCUES = _BY_NAME["temper_rescued_calls_total"]
REPAIRS = _BY_NAME["temper_repairs_total"]
REFUSALS = _BY_NAME["temper_refused_calls_total"]
HEALINGS = _BY_NAME["temper_healings_total"]
OMISSIONS = _BY_NAME["temper_omissions_total"]
COMPACTIONS = _BY_NAME["temper_compactions_total"]
CONTEXT = _BY_NAME["temper_context_tokens"]
TOKENS = _BY_NAME["temper_tokens_total"]
CLIENT_REQUESTS = _BY_NAME["temper_client_requests_total"]
CLIENT_TOKENS = _BY_NAME["temper_client_tokens_total"]
CANCELLED = _BY_NAME["temper_cancelled_requests_total"]
BACKEND_ERRORS = _BY_NAME["temper_backend_errors_total"]
WAITING = _BY_NAME["temper_requests_waiting"]
RUNNING = _BY_NAME["temper_requests_running"]
CACHE = _BY_NAME["temper_kv_cache_usage_ratio"]
UP = _BY_NAME["temper_backend_up"]
RESTARTS = _BY_NAME["temper_backend_restarts"]
UNSTORED = _BY_NAME["temper_unstored_responses_total"]
STATE_UP = _BY_NAME["temper_state_up"]
STATE_ERRORS = _BY_NAME["temper_state_errors_total"]
TOOL_CALLS = _BY_NAME["temper_tool_calls_total"]
TOOL_DURATION = _BY_NAME["temper_tool_duration_seconds"]
TOOL_SERVER_UP = _BY_NAME["temper_tool_server_up"]
ROUNDS = _BY_NAME["temper_rounds_total"]
