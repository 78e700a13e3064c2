"""The goals for Temper's speed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from benchmarks.load.candidates import DIRECT, TEMPER
from benchmarks.load.languages import DIALECTS
from benchmarks.load.results import Results

# Computes a value, such as a ratio, from the results; None if a figure was not measured.
ComputeValue: TypeAlias = Callable[[Results], float | None]


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound for a value: an upper bound, or a lower bound if `is_least`.

    `unit` is printed after the value and the bound.
    """

    scenario: str
    what: str
    read: ComputeValue
    bound: float
    unit: str = ""
    is_least: bool = False

    def is_met(self, value: float) -> bool:
        """Return whether a value is within the bound."""
        return value >= self.bound if self.is_least else value <= self.bound


def plain(scenario: str, figure: str) -> ComputeValue:
    """Return a function that returns a figure of Temper."""
    return lambda results: results.figure(scenario, TEMPER, figure)


def ratio(scenario: str, figure: str, other: str) -> ComputeValue:
    """Return a function that divides Temper's figure by the figure of another candidate."""

    def read(results: Results) -> float | None:
        value, other_value = (
            results.figure(scenario, candidate, figure) for candidate in (TEMPER, other)
        )
        return value / other_value if value is not None and other_value else None

    return read


def added(scenario: str, figure: str, candidate: str = TEMPER) -> ComputeValue:
    """Return a function that subtracts the figure without a proxy from a candidate's figure."""

    def read(results: Results) -> float | None:
        value, lower_bound = (
            results.figure(scenario, name, figure) for name in (candidate, DIRECT)
        )
        return value - lower_bound if value is not None and lower_bound is not None else None

    return read


def ratio_added(scenario: str, figure: str, other: str) -> ComputeValue:
    """Return a function that divides Temper's added time by that of another candidate."""

    def read(results: Results) -> float | None:
        value, other_value = (
            added(scenario, figure, candidate)(results) for candidate in (TEMPER, other)
        )
        return value / other_value if value is not None and other_value else None

    return read


GOALS = (
    Goal("call", "added p50, relative to forge", ratio_added("call", "p50", "forge"), 1 / 3),
    Goal("call", "added p50, relative to litellm", ratio_added("call", "p50", "litellm"), 1 / 8),
    *(
        Goal(
            "call",
            f"requests/s at 16, relative to {peer}",
            ratio("call", "requests_per_second", peer),
            lower_bound,
            is_least=True,
        )
        for peer, lower_bound in (("forge", 8), ("litellm", 15), ("portkey", 1.5))
    ),
    Goal(
        "call",
        "CPU per request at 16, relative to bare",
        ratio("call", "cpu_us_per_request", "bare"),
        2,
    ),
    Goal(
        "call",
        "CPU per request, one at a time, relative to bare",
        ratio("call", "cpu_us_per_request_alone", "bare"),
        2,
    ),
    *(
        Goal(name, "CPU per token, relative to bare", ratio(name, "cpu_us_per_token", "bare"), 1)
        for name in ("streams", "slow")
    ),
    Goal(
        "burst",
        "tokens/s, relative to direct",
        ratio("burst", "tokens_per_second", DIRECT),
        0.5,
        is_least=True,
    ),
    *(
        goal
        for name in ("prose-accept", "prose-respond")
        for goal in (
            Goal(name, "first content, added", added(name, "first_content"), 5, " ms"),
            Goal(
                name, "first content, relative to bare", ratio(name, "first_content", "bare"), 1.1
            ),
            Goal(name, "total, relative to direct", ratio(name, "total", DIRECT), 1.02),
        )
    ),
    Goal("plain", "first content, added", added("plain", "first_content"), 5, " ms"),
    Goal(
        "streams",
        "CPU per token, relative to litellm",
        ratio("streams", "cpu_us_per_token", "litellm"),
        0.2,
    ),
    Goal(
        "burst",
        "tokens/s, relative to litellm",
        ratio("burst", "tokens_per_second", "litellm"),
        20,
        is_least=True,
    ),
    Goal("slow", "added delay per token, p50", added("slow", "delay_p50"), 5, " ms"),
    Goal("slow", "added delay per token, p99", added("slow", "delay_p99"), 40, " ms"),
    Goal("slow", "delay per token p99, relative to bare", ratio("slow", "delay_p99", "bare"), 2),
    Goal("rush", "first content p50", plain("rush", "first_content"), 100, " ms"),
    Goal("slow", "peak memory", plain("slow", "peak_mb"), 120, " MB"),
    Goal("slow", "errors", plain("slow", "errors"), 0),
    *(
        Goal(
            "languages",
            f"{language}: {what}, relative to chat",
            plain("languages", figure),
            1.25,
        )
        for language in DIALECTS
        for what, figure in (
            ("CPU per call", f"{language}_call_of_chat"),
            ("CPU per token of 8 streams", f"{language}_prose_of_chat"),
            ("CPU per token of 256 slow streams", f"{language}_slow_of_chat"),
        )
    ),
    Goal("large", "p50, relative to forge", ratio("large", "p50", "forge"), 0.25),
    Goal("start", "to the first answer", plain("start", "ready_seconds"), 1, " s"),
    Goal("start", "idle memory", plain("start", "idle_mb"), 80, " MB"),
    Goal("healthy", "generations per answer", plain("healthy", "generations"), 1),
    Goal("healthy", "changed", plain("healthy", "changed"), 0),
    Goal("healthy", "prompts changed", plain("healthy", "prompts"), 0),
    Goal("healthy", "first content, added, p50", plain("healthy", "first_content_p50"), 5, " ms"),
    Goal("healthy", "first content, added, p99", plain("healthy", "first_content_p99"), 15, " ms"),
    # A rule may hold a delta back (decision 0018). This time depends on the model, not on Temper,
    # so it is not included.
    Goal(
        "healthy",
        "first argument byte, beyond holding, p50",
        plain("healthy", "first_argument_p50"),
        3,
        " ms",
    ),
    Goal(
        "healthy",
        "delay per delta, beyond holding, p50",
        plain("healthy", "late_p50"),
        5,
        " ms",
    ),
    Goal(
        "healthy",
        "delay per delta, beyond holding, p99",
        plain("healthy", "late_p99"),
        15,
        " ms",
    ),
    Goal("arguments", "t(2n)/t(n)", plain("arguments", "growth"), 2.3),
)
