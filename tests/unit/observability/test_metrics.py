import os
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy import facts
from proxy.facts import Fact, ReplyOutcome
from proxy.observability.metrics import METRICS, Metric, Metrics, forget_process, share_folder
from proxy.observability.record import AttemptRecord, RequestRecord, Tokens, ToolRecord
from tests.fakes.exposition import Exposition

RECORD = RequestRecord(
    id="r",
    begun_at=0.0,
    seconds=3.0,
    status=200,
    model="whatever the client wrote",
    service="default",
    queued=0.5,
    first_token=1.5,
    tokens=Tokens(100, 60, 7),
    attempts=(AttemptRecord("as_asked", 0.5, 1.0, "prose"), AttemptRecord("nudged", 1.5, 1.25)),
    outcome=ReplyOutcome.RETRIED,
)


def exposition_of(*records: RequestRecord) -> Exposition:
    metrics = Metrics()
    metrics.follow(["default"])
    for record in records:
        metrics.take(record)
    return Exposition.read(metrics.exposition("")[0].decode())


def test_a_request_is_added_to_the_request_duration_and_token_metrics() -> None:
    exposition = exposition_of(RECORD, RECORD)
    labels = {"model": "default", "status": "200", "outcome": "retried"}
    assert exposition.value("temper_requests_total", dialect="chat", **labels) == 2
    assert exposition.value("temper_request_duration_seconds_sum", model="default") == 6.0
    assert exposition.value("temper_time_to_first_token_seconds_sum") == 3.0
    assert exposition.value("temper_queue_duration_seconds_sum") == 1.0
    assert exposition.value("temper_overhead_seconds_sum") == 0.5
    assert exposition.value("temper_overhead_seconds_bucket", le="0.25") == 2
    assert exposition.value("temper_overhead_seconds_bucket", le="0.1") == 0
    counted = [
        exposition.value("temper_tokens_total", type=kind) for kind in ("input", "cached", "output")
    ]
    assert counted == [200, 120, 14]


def test_requests_are_labeled_by_dialect() -> None:
    exposition = exposition_of(
        RECORD, replace(RECORD, dialect="messages"), replace(RECORD, dialect="messages")
    )
    assert exposition.value("temper_requests_total", dialect="messages") == 2
    assert exposition.value("temper_requests_total") == 3


def test_attempts_are_counted_by_reason_and_result_but_disconnects_by_phase() -> None:
    failed = AttemptRecord("constrained", 1.0, 1.0, error="timed_out")
    left = replace(RECORD, status=499, outcome=None, left="streaming")
    exposition = exposition_of(RECORD, replace(RECORD, attempts=(failed,)), left)
    name = "temper_attempts_total"
    assert exposition.value(name, reason="as_asked", result="rejected") == 2
    assert exposition.value(name, reason="nudged", result="accepted") == 1
    assert exposition.value(name, reason="nudged", result="cancelled") == 1
    assert exposition.value(name, reason="constrained", result="failed") == 1
    assert exposition.value("temper_backend_errors_total", kind="timed_out") == 1
    assert exposition.value("temper_cancelled_requests_total", phase="streaming") == 1
    assert exposition.value("temper_requests_total", status="499", outcome="none") == 1


@pytest.mark.parametrize(
    ("fact", "name", "labels"),
    [
        (facts.Rescued("hermes", "f"), "temper_rescued_calls_total", {"syntax": "hermes"}),
        (facts.Refused("quoted"), "temper_refused_calls_total", {"reason": "quoted"}),
        (facts.RejectedReply("prose"), "temper_rejected_replies_total", {"defect": "prose"}),
        (facts.Healed("call_id"), "temper_healings_total", {"what": "call_id"}),
        (facts.Omitted("web_search"), "temper_omissions_total", {"what": "web_search"}),
        (facts.Repaired("f"), "temper_repairs_total", {"kind": "repaired"}),
        (facts.Coerced("f", "/a"), "temper_repairs_total", {"kind": "coerced"}),
        (facts.Renamed("F", "f"), "temper_repairs_total", {"kind": "renamed"}),
        (facts.Dropped("code_fence"), "temper_repairs_total", {"kind": "dropped"}),
        (facts.Withheld(), "temper_withheld_attempts_total", {}),
        (facts.Resent(), "temper_resent_requests_total", {}),
    ],
)
def test_each_fact_increments_its_counter(fact: Fact, name: str, labels: dict[str, str]) -> None:
    exposition = exposition_of(replace(RECORD, facts=(fact, fact, facts.LadderEnded("prose"))))
    assert exposition.value(name, model="default", **labels) == 2


def test_a_compaction_is_counted_once_but_the_tokens_of_each_prompt_are_observed() -> None:
    cut = facts.Compacted(2, 3, 1, 1, 900, 2000, 1024, is_new=True)
    exposition = exposition_of(
        replace(RECORD, facts=(cut,)), replace(RECORD, facts=(replace(cut, is_new=False),))
    )
    assert exposition.value("temper_compactions_total", tier="2") == 1
    assert exposition.value("temper_context_tokens_sum") == 1800
    assert exposition.value("temper_context_tokens_bucket", le="1024.0") == 2


def test_all_unknown_model_names_are_counted_under_the_label_other() -> None:
    unknown = [replace(RECORD, service=None, model=f"m{number}") for number in range(50)]
    exposition = exposition_of(*unknown)
    assert exposition.value("temper_requests_total", model="other") == 50
    models = {
        sample.labels["model"]
        for family in exposition.families.values()
        for sample in family.samples
    }
    assert models == {"default", "other"}


def test_requests_and_tokens_are_counted_per_owner_of_an_api_key() -> None:
    exposition = exposition_of(RECORD, replace(RECORD, client="ann"), replace(RECORD, client="ann"))
    assert exposition.value("temper_client_requests_total", client="ann", outcome="retried") == 2
    assert exposition.value("temper_client_tokens_total", client="ann", type="output") == 14
    assert exposition.value("temper_client_requests_total") == 2  # RECORD has no owner


def test_owners_of_api_keys_after_the_first_two_hundred_are_counted_as_other() -> None:
    exposition = exposition_of(*(replace(RECORD, client=f"c{number}") for number in range(250)))
    assert exposition.value("temper_client_requests_total") == 250
    assert exposition.value("temper_client_requests_total", client="other") == 50
    assert exposition.value("temper_client_requests_total", client="c199") == 1


def test_the_load_gauges_are_zero_before_and_after_a_request() -> None:
    metrics = Metrics()
    metrics.follow(["a", "b"])

    def exposition() -> list[float]:
        read = Exposition.read(metrics.exposition("")[0].decode())
        names = ("requests_waiting", "requests_running", "kv_cache_usage_ratio")
        assert all(f"temper_{name}" in read.families for name in names)
        return [read.value(f"temper_{name}", model="a") for name in names]

    assert exposition() == [0, 0, 0]
    metrics.load("a").wait(1, "low")
    metrics.load("a").run(1, 0.25)
    metrics.load("b").run(1, 0.5)
    assert exposition() == [1, 1, 0.25]
    read = Exposition.read(metrics.exposition("")[0].decode())
    waiting = "temper_requests_waiting_by_priority"
    assert read.value(waiting, model="a", priority="low") == 1
    metrics.load("a").wait(-1, "low")
    metrics.load("a").run(-1, -0.25)
    assert exposition() == [0, 0, 0]


def test_the_gauge_of_a_backend_is_one_while_any_of_its_servers_is_up() -> None:
    metrics = Metrics()
    metrics.follow(["a"])
    for is_up in (True, False):
        metrics.report_backend("a", {"one": False, "two": is_up}, restarts=2)
        exposition = Exposition.read(metrics.exposition("")[0].decode())
        assert exposition.value("temper_backend_up", model="a") == is_up
        assert exposition.value("temper_backend_server_up", model="a", server="one") == 0
        assert exposition.value("temper_backend_server_up", model="a", server="two") == is_up
        assert exposition.value("temper_backend_restarts", model="a") == 2


def test_the_accept_header_selects_the_format_of_the_exposition() -> None:
    metrics = Metrics()
    metrics.follow(["default"])
    metrics.take(RECORD)
    plain, plain_type = metrics.exposition("text/plain;version=0.0.4")
    assert plain_type.startswith("text/plain")
    assert Exposition.read(plain.decode()).value("temper_requests_total") == 1
    modern, modern_type = metrics.exposition("application/openmetrics-text;version=1.0.0,*/*;q=0.1")
    assert modern_type.startswith("application/openmetrics-text")
    read = Exposition.read(modern.decode(), is_openmetrics=True)
    assert read.value("temper_requests_total") == 1
    assert not any(name.endswith("_created") for name in read.families)


@pytest.mark.parametrize("before", [None, "/elsewhere"])
def test_share_folder_removes_its_folder_and_restores_the_environment_variable(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    if before is not None:
        monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", before)
    with share_folder() as folder:
        assert os.environ["PROMETHEUS_MULTIPROC_DIR"] == folder
        assert Path(folder).is_dir()
        (Path(folder) / "gauge_livesum_7.db").touch()
        (Path(folder) / "counter_7.db").touch()
        forget_process(7, folder)
        assert [path.name for path in Path(folder).iterdir()] == ["counter_7.db"]
    assert not Path(folder).exists()
    assert os.environ.get("PROMETHEUS_MULTIPROC_DIR") == before


def test_tool_calls_are_counted_by_server_and_tool_rounds_by_model() -> None:
    calls = [
        ToolRecord("search", "find", "1", 1, 0.0, 0.5, "done"),
        ToolRecord("search", "find", "2", 1, 0.0, 1.0, "lost"),
        ToolRecord("time", "now", "3", 2, 0.0, 0.25, "done"),
        ToolRecord("time", "set", "4", 2, 0.0, 0.0, "refused", "refused", waited=9.0),
    ]
    exposition = exposition_of(replace(RECORD, tools=tuple(calls)), RECORD)
    assert exposition.value("temper_tool_calls_total", server="search", result="done") == 1
    assert exposition.value("temper_tool_calls_total", server="search", result="lost") == 1
    assert exposition.value("temper_tool_duration_seconds_sum", server="search") == 1.5
    assert exposition.value("temper_tool_calls_total", server="time", result="refused") == 1
    assert exposition.value("temper_tool_duration_seconds_count", server="time") == 1
    assert exposition.value("temper_rounds_total", model="default") == 2


def test_the_tool_server_gauge_is_one_while_the_server_is_up() -> None:
    metrics = Metrics()
    metrics.report_tool_servers({"search": True, "time": False})
    exposition = Exposition.read(metrics.exposition("")[0].decode())
    assert exposition.value("temper_tool_server_up", server="search") == 1
    assert exposition.value("temper_tool_server_up", server="time") == 0
    metrics.report_tool_servers({"time": True})
    text = metrics.exposition("")[0].decode()
    assert Exposition.read(text).value("temper_tool_server_up", server="time") == 1
    assert "search" not in text


def test_report_state_sets_the_gauge_and_count_state_error_increments_the_counter() -> None:
    metrics = Metrics()
    metrics.report_state("127.0.0.1:6379", is_up=True)
    metrics.report_state("127.0.0.1:6379", is_up=False)
    for _ in range(2):
        metrics.count_state_error("claim")
    exposition = Exposition.read(metrics.exposition("")[0].decode())
    assert exposition.value("temper_state_up", server="127.0.0.1:6379") == 0
    assert exposition.value("temper_state_errors_total", operation="claim") == 2


GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "observability.md"
UNITS = ("_seconds", "_tokens", "_ratio", "_rounds")
BOUNDED = {
    "defect",
    "kind",
    "model",
    "outcome",
    "phase",
    "reason",
    "server",
    "result",
    "cause",
    "client",
    "dialect",
    "operation",
    "priority",
    "status",
    "syntax",
    "tier",
    "type",
    "what",
}


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_metric_names_follow_the_conventions_of_prometheus(metric: Metric) -> None:
    assert re.fullmatch(r"temper_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.name.endswith(UNITS) or metric.kind != "histogram"
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert list(metric.buckets) == sorted(set(metric.buckets))


def test_the_metrics_have_only_labels_with_a_bounded_number_of_values() -> None:
    labels = {name: metric.labels for name, metric in METRICS.items()}
    assert {label for several in labels.values() for label in several} == BOUNDED
    others = {
        name: several[0]
        for name, several in labels.items()
        if several[0] not in ("model", "server", "client")
    }
    assert others == {
        "temper_unstored_responses_total": "reason",
        "temper_state_errors_total": "operation",
    }


def test_the_observability_guide_lists_every_metric() -> None:
    rows = re.findall(
        r"^\| `(temper_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$",
        GUIDE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert rows == [
        (
            metric.name,
            metric.kind,
            ", ".join(f"`{label}`" for label in metric.labels),
            metric.meaning,
        )
        for metric in METRICS.values()
    ]


def test_attempts_and_tokens_of_a_fallback_are_labeled_with_the_fallback_model() -> None:
    rejected = AttemptRecord("constrained", 0.5, 1.0, "prose")
    attempts = (rejected, AttemptRecord("fallback", 1.5, 1.25, model="big"))
    answered = facts.FellBack("big", "answered")
    record = replace(RECORD, attempts=attempts, facts=(answered,), outcome=ReplyOutcome.FALLBACK)
    seen = exposition_of(record)
    assert seen.value("temper_fallbacks_total", model="default", result="answered") == 1
    assert seen.value("temper_attempts_total", model="default", result="rejected") == 1
    assert seen.value("temper_attempts_total", model="big", result="accepted") == 1
    assert seen.value("temper_tokens_total", model="big", type="output") == 7
    failed = AttemptRecord("fallback", 1.5, 1.25, "prose", model="big")
    seen = exposition_of(
        replace(record, attempts=(rejected, failed), outcome=ReplyOutcome.EXHAUSTED)
    )
    assert seen.value("temper_tokens_total", model="default", type="output") == 7


def test_the_number_of_tool_rounds_is_observed_in_a_histogram() -> None:
    exposition = exposition_of(replace(RECORD, facts=(facts.RoundsMade(300),)))
    assert exposition.value("temper_conversation_rounds_sum") == 300
