import re
from xml.etree import ElementTree

import pytest
from msgspec import structs

pytest.importorskip("matplotlib")

from temper_evals.report import plots
from temper_evals.results import results_of
from tests.unit.temper_evals.test_results import runs_of

RUNS = [*runs_of("direct", "++--"), *runs_of("temper", "-+++"), *runs_of("ceiling", "++++")]
CELL = [structs.replace(run, bed="bed@low-mid-high") for run in RUNS]
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
def test_a_plot_is_an_svg_image_that_contains_its_numbers_as_text(
    drawn: plots.ResultPicture, words: tuple[str, ...]
) -> None:
    tree = ElementTree.fromstring(drawn.svg)  # noqa: S314 - drawn above
    texts = " ".join(tree.itertext())
    assert [word for word in (*words, drawn.title) if word not in texts] == []
    assert re.findall(r'href="(?!#|data:)|@import|url\((?!#)', drawn.svg) == []


def test_equal_results_give_equal_plots() -> None:
    assert plots.lifts(RESULTS).url == plots.lifts(RESULTS).url


def test_arms_at_the_same_point_share_a_label() -> None:
    arms = ("direct", "temper", "temper-off", "ceiling")
    runs = [run for arm, row in zip(arms, ("+--", "++-", "+--", "+++"), strict=True)
            for run in runs_of(arm, row)]  # fmt: skip
    drawn = ElementTree.fromstring(plots.cost_against_success(results_of(runs, 50), "bed").svg)  # noqa: S314
    texts = [text.strip() for text in drawn.itertext()]
    assert [text for text in texts if text.startswith(arms)] == [
        "direct, temper-off",
        "temper",
        "ceiling",
    ]
