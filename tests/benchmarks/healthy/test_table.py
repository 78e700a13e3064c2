import pytest

from benchmarks.healthy import table
from benchmarks.healthy.tally import counted_name, timed_name
from benchmarks.load import table as load_table
from benchmarks.load.results import Machine, Results

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
PAGE = "Before.\n<!-- figures: {} -->\n\nold\n\n<!-- end of figures -->\nBehind.\n"


def row(text: str, name: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_what_was_added_stands_in_milliseconds_beside_the_counts() -> None:
    shown = table.timings(RESULTS)
    assert row(shown, "prose") == ["1.2 / 1,234", *["-"] * 5, "1.00", "2 of 200"]
    assert row(shown, "one call, not streamed") == ["-"] * 8
    assert "A CPU" in shown


def test_what_was_changed_stands_beside_the_policies() -> None:
    shown = table.harm(RESULTS)
    assert row(shown, "") == ["`auto`", "`accept`", "`respond`", "`require`"]
    assert row(shown, "prose") == ["0 of 400", "-", "-", "390 of 400, 400 asked again"]


@pytest.mark.parametrize(("kind", "write"), [("healthy", table.timings), ("harm", table.harm)])
def test_pages_are_renewed_at_marks_of_their_own(kind: str, write: table.Writer) -> None:
    page = PAGE.format(kind)
    assert load_table.renewed(page, RESULTS) == page.replace("old\n", write(RESULTS))


def test_a_mark_of_which_the_results_say_nothing_keeps_what_it_has() -> None:
    others = PAGE.format("brief")
    both = others + PAGE.format("harm")
    assert load_table.renewed(both, RESULTS).startswith(others)
    with pytest.raises(ValueError, match="no mark <!-- figures: healthy -->"):
        load_table.renewed(others, RESULTS)
    usual = Results("2026-01-02", RESULTS.machine, rounds={"call": {"temper": [{"p50": 1.0}]}})
    assert load_table.renewed(both, usual).endswith(PAGE.format("harm"))
