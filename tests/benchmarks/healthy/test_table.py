"""The table with the results for healthy replies: added time, and changed replies."""

from benchmarks.healthy import table
from benchmarks.healthy.tally import counted_name, timed_name
from benchmarks.load.results import Machine, Results
from benchmarks.load.table import figures_of

FIGURES = {
    "replies": 200.0,
    timed_name("prose", "streamed", "first_content_p50"): 1.234,
    timed_name("prose", "streamed", "first_content_p99"): 1234.0,
    timed_name("prose", "streamed", "generations"): 1.005,
    timed_name("prose", "streamed", "changed"): 2.0,
    counted_name("auto", "prose", "replies"): 400.0,
    counted_name("auto", "prose", "changed"): 0.0,
    counted_name("auto", "prose", "again"): 0.0,
    counted_name("require", "prose", "replies"): 400.0,
    counted_name("require", "prose", "changed"): 390.0,
    counted_name("require", "prose", "again"): 400.0,
}
RESULTS = Results(
    "2026-01-02",
    Machine("A CPU", 2, "Linux x86_64", "3.11.7"),
    rounds={"healthy": {"temper": [FIGURES]}},
)


def row(text: str, name: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_the_table_has_a_row_with_added_milliseconds_and_counts_for_each_kind_of_reply() -> None:
    shown = table.timings(RESULTS)
    assert row(shown, "prose") == ["1.2 / 1,234", *["-"] * 6, "1.00", "2 of 200"]
    assert row(shown, "one call, not streamed") == ["-"] * 9
    assert "A CPU" in shown


def test_the_table_has_the_number_of_changed_replies_for_each_policy() -> None:
    shown = table.harm(RESULTS)
    assert row(shown, "") == ["`auto`", "`accept`", "`respond`", "`require`"]
    assert row(shown, "prose") == ["0 of 400", "-", "-", "390 of 400, 400 retried"]


def test_pages_contain_the_table_with_or_without_other_figures() -> None:
    healthy_figures = {"healthy": table.timings(RESULTS), "harm": table.harm(RESULTS)}
    assert figures_of(RESULTS) == healthy_figures
    rounds = {**RESULTS.rounds, "call": {"temper": [{"p50": 1.0}]}}
    all_figures = figures_of(Results("2026-01-02", RESULTS.machine, rounds=rounds))
    assert all_figures.keys() == {"all", "brief", "healthy", "harm"}
    assert healthy_figures.items() <= all_figures.items()
