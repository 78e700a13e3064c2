"""The results of the load benchmark as tables and pages."""

from pathlib import Path

from benchmarks.load import table
from benchmarks.load.goals import GOALS
from benchmarks.load.results import Machine, Results, load, save
from benchmarks.load.scenarios import SCENARIOS

RESULTS = Results(
    "2026-01-02",
    Machine("A CPU", 2, "Linux x86_64", "3.11.7"),
    versions={"forge": "1.0"},
    absent={"nginx": "not available here: nginx is not on PATH"},
    rounds={
        "call": {
            "direct": [{"p50": 0.1, "requests_per_second": 9000, "errors": 0}],
            "temper": [
                {"p50": 0.4, "requests_per_second": 2000, "errors": 0},
                {"p50": 9.0, "requests_per_second": 2200, "errors": 0},
                {"p50": 0.6, "requests_per_second": 1000, "errors": 0},
            ],
            "forge": [{"p50": 2.1, "requests_per_second": 200, "errors": 0}],
        }
    },
    problems={"call": {"forge": ["status 500: no"]}},
)


def rows(results: Results) -> dict[str, list[str]]:
    lines = table.markdown(results).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    named = {" ".join(row[:2]) if row[0].startswith("`") else row[0]: row[1:] for row in cells}
    return named | {"candidates": next(row[1:] for row in cells if len(row) > 1)}


def test_table_has_the_medians_of_all_candidates() -> None:
    shown = rows(RESULTS)
    assert shown["candidates"] == ["direct", "temper", "forge"]
    assert shown["one call, not streamed: p50, ms"] == ["0.1", "0.6", "2.1"]
    assert shown["the same, 16 at once: requests/s"] == ["9,000", "2,000", "200"]


def test_a_goal_is_shown_as_met_or_missed_or_not_measured() -> None:
    shown = rows(RESULTS)
    assert shown["`call` added p50, relative to forge"][1:] == ["<= 0.333", "0.25", "yes"]
    assert shown["`call` added p50, relative to litellm"][2:] == ["-", "not measured"]
    assert shown["`call` requests/s at 16, relative to forge"][1:] == [">= 8", "10", "yes"]


def test_the_first_content_has_a_goal_relative_to_the_bare_proxy() -> None:
    figures = {"temper": [{"first_content": 6.3}], "bare": [{"first_content": 6.0}]}
    shown = rows(Results("2026-01-02", RESULTS.machine, rounds={"prose-accept": figures}))
    assert shown["`prose-accept` first content, relative to bare"][1:] == ["<= 1.1", "1.05", "yes"]


def test_a_goal_that_was_missed_is_shown_in_bold() -> None:
    slower = {"call": {**RESULTS.rounds["call"], "temper": [{"p50": 2.0}]}}
    results = Results("2026-01-02", RESULTS.machine, rounds=slower)
    assert rows(results)["`call` added p50, relative to forge"][2:] == ["0.95", "**no**"]


def test_the_page_lists_the_machine_and_date_and_versions_and_missing_candidates() -> None:
    text = table.markdown(RESULTS)
    assert "2026-01-02: A CPU, 2 cores, Linux x86_64, Python 3.11.7; medians of 3 full" in text
    assert "forge 1.0" in text
    assert "- nginx: not available here: nginx is not on PATH" in text
    assert "- forge in `call`: status 500: no" in text


def test_the_tables_for_pages_are_the_full_and_the_brief_table() -> None:
    figures = {"all": table.markdown(RESULTS), "brief": table.brief(RESULTS)}
    assert table.figures_of(RESULTS) == figures


def test_the_brief_table_has_the_machine_and_some_rows_of_the_full_table() -> None:
    brief, full = table.brief(RESULTS).splitlines(), table.markdown(RESULTS).splitlines()
    assert set(brief) <= set(full)
    assert "A CPU" in brief[0]
    assert any("requests/s" in line for line in brief)


def test_saved_results_are_loaded_unchanged(tmp_path: Path) -> None:
    save(RESULTS, tmp_path / "results.json")
    assert load(tmp_path / "results.json") == RESULTS


def test_every_row_and_every_goal_belongs_to_a_scenario() -> None:
    assert table.ROWS.keys() == SCENARIOS.keys()
    assert {goal.scenario for goal in GOALS} <= SCENARIOS.keys()
