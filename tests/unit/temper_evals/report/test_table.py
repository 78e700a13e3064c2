from msgspec.structs import replace

from proxy.conversation import json
from temper_evals.report.table import (
    HEADINGS,
    Price,
    document,
    failures,
    markdown,
    percent,
    points,
    rows,
    wrong_ends,
)
from temper_evals.results import results_of
from temper_evals.statistics import Interval
from tests.unit.temper_evals.test_results import runs_of

RESULTS = results_of(
    [*runs_of("direct", "++--"), *runs_of("temper", "-+++"), *runs_of("ceiling", "++++")], 200
)


def test_a_row_of_the_table_has_the_success_the_helped_and_harmed_runs_and_the_ceiling() -> None:
    needed = {"helped", "harmed", "harm below", "gen./request", "tokens/run", "ceiling"}
    assert needed <= {*HEADINGS}
    row = dict(zip(HEADINGS, rows(RESULTS)[1], strict=True))
    assert (row["arm"], row["success"], row["helped"], row["harmed"]) == (
        "temper",
        "75.0",
        "2",
        "1",
    )
    assert (row["ceiling"], row["gap closed"]) == ("100.0", "50 %")


def test_the_ceiling_is_unknown_if_the_arm_ceiling_has_no_runs() -> None:
    row = rows(results_of(runs_of("direct", "+-"), 10))[0]
    assert row[-1] == "unknown"
    assert row[4:8] == ("", "", "", "")


def test_failed_runs_are_counted_with_their_most_frequent_reason() -> None:
    runs = runs_of("temper", "+---")
    reasons = ("", "404 no such model", "503 busy", "404 no such model")
    broken = [
        replace(run, ending="failed" if reason else run.ending, why=reason)
        for run, reason in zip(runs, reasons, strict=True)
    ]
    problems = ["bed temper: 3 of 4 runs failed, most often because: 404 no such model"]
    assert failures([*runs_of("direct", "++"), *broken]) == problems
    assert failures(runs) == []


def test_wrong_runs_of_scenarios_of_the_user_are_listed_with_the_reason() -> None:
    runs = runs_of("temper", "+-", "own")
    wrong = [replace(run, why="" if run.right else "no answer") for run in runs]
    assert wrong_ends([*wrong, *runs_of("temper", "-")]) == ["temper own-1/0: no answer"]
    many = wrong_ends(runs_of("temper", "-" * 25, "own"))
    assert len(many) == 21
    assert many[-1] == "... and 5 more in runs.jsonl"


def test_the_table_is_markdown_with_a_cell_for_each_heading() -> None:
    lines = markdown(RESULTS).splitlines()
    assert len(lines) == 2 + len(RESULTS)
    assert {line.count("|") for line in lines} == {len(HEADINGS) + 1}


def test_the_table_has_a_column_with_the_cost_if_a_price_is_given() -> None:
    price = Price(1.0, 10.0)
    lines = markdown(RESULTS, price).splitlines()
    assert {line.count("|") for line in lines} == {len(HEADINGS) + 2}
    first = RESULTS[0]
    cost = (first.cost.prompt + 10 * first.cost.generated) / 1000
    assert lines[2].endswith(f"| {cost:.2f} |")


def test_percent_and_points_format_shares_and_intervals() -> None:
    assert percent(0.1234) == "12.3"
    assert points(Interval(0.05, -0.01, 0.1)) == "+5.0 [-1.0, +10.0]"


def test_document_has_the_numbers_of_an_arm_as_json() -> None:
    direct, temper, _ = map(document, RESULTS)
    assert direct["lift"] is None
    assert (temper["helped"], temper["harmed"], temper["runs"]) == (2, 1, 4)
    assert json.parse(json.dump(temper)) == temper
