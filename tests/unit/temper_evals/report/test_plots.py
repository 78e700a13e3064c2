from xml.etree import ElementTree

import pytest
from msgspec import structs

from temper_evals.report import plots
from temper_evals.results import results_of
from tests.unit.temper_evals.test_results import runs_of

RUNS = [*runs_of("direct", "++--"), *runs_of("temper", "-+++"), *runs_of("ceiling", "++++")]
CELL = [structs.replace(one, bed="bed@low-mid-high") for one in RUNS]
RESULTS = results_of([*RUNS, *CELL], 100)


@pytest.mark.parametrize(
    ("drawn", "words"),
    [
        (plots.forest(RESULTS, "bed"), ("chain", "3/4", "2/4", "4/4")),
        (plots.lifts(RESULTS), ("bed temper", "+25.0")),
        (plots.help_and_harm(RESULTS), ("bed temper", "+2 / -1")),
        (plots.cost_against_success(RESULTS, "bed"), ("direct", "temper")),
        (plots.grid_map(RESULTS, "bed"), ("+25.0", "rates low", "mid/high")),
        (plots.lifts([]), ("Lift over direct",)),
    ],
)
def test_a_picture_is_svg_that_says_its_figures(drawn: str, words: tuple[str, ...]) -> None:
    tree = ElementTree.fromstring(drawn)  # noqa: S314 - drawn above
    said = " ".join(tree.itertext())
    assert [one for one in words if one not in said] == []
    assert "http" not in drawn


def test_arms_at_one_place_share_a_name_that_can_be_read() -> None:
    arms = ("direct", "temper", "temper-off", "ceiling")
    runs = [run for arm, row in zip(arms, ("+--", "++-", "+--", "+++"), strict=True)
            for run in runs_of(arm, row)]  # fmt: skip
    drawn = ElementTree.fromstring(plots.cost_against_success(results_of(runs, 50), "bed"))  # noqa: S314
    said = [one.text for one in drawn.iter() if one.get("class") == "label"]
    assert said[:3] == ["direct, temper-off", "temper", "ceiling"]


def test_an_axis_ends_where_the_picture_does() -> None:
    axis = plots.Axis(0.0, 1.0)
    assert axis.place(-5) == axis.place(0.0)
    assert axis.place(5) == axis.place(1.0)
    assert axis.place(0.5) == (axis.place(0.0) + axis.place(1.0)) / 2
