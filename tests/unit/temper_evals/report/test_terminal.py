import io

import pytest
from msgspec import structs
from rich.console import Console

from temper_evals.records import RunRecord
from temper_evals.report.terminal import failure_class, show, show_by, show_categories, verdicts
from temper_evals.results import ceilings_of, results_of
from tests.benchmarks.evals.test_thresholds import ALL, DIRECT, RUN, arm

LONG = "temper-without-constrained"
HELPED = "-" * 10 + "+" * 30
ALL_RUNS = [
    *DIRECT,
    *arm("temper", HELPED),
    *arm(LONG, HELPED),
    *arm("forge-respond", ALL),
    *arm("ceiling", ALL),
]


def printed(runs: list[RunRecord], width: int, *groups: str) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    results = results_of(runs, 200)
    show(console, results, runs)
    for group in groups:
        show_by(console, group, results, runs)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def verdict(*runs: RunRecord) -> str:
    (line,) = verdicts(results_of(runs, 200), runs)
    return line


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_of_the_results_is_wider_than_the_terminal_or_cut_with_an_ellipsis(
    width: int,
) -> None:
    lines = printed(ALL_RUNS, width, "family", "failure")
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "…" not in text
    for word in (
        "direct",
        "temper-without-",
        "constrained",
        "lift (95 %)",
        "helped",
        "harmed",
        "gen.",
        "ceiling 100.0",
    ):
        assert word in text
    assert ("damage" in text) is (width == 200)


@pytest.mark.parametrize(("width", "is_narrow"), [(60, True), (200, False)])
def test_results_of_several_models_are_printed_in_one_table_within_the_width(
    width: int, *, is_narrow: bool
) -> None:
    other = [structs.replace(run, bed="a-model-with-a-rather-long-name-q4_k_m") for run in ALL_RUNS]
    lines = printed([*ALL_RUNS, *other], width)
    (start,) = (number for number, line in enumerate(lines) if "right % by model" in line)
    heading = " ".join(lines[start : start + 2])
    assert ("forge-respond" in heading) is not is_narrow
    table = "\n".join(lines[start:]).partition("\n\n")[0]
    assert {"direct", "temper", "helped", "harmed", "gen."} <= {*table.split()}
    assert "…" not in table
    assert max(map(len, lines[start : start + 6])) <= width


def test_the_first_printed_line_is_the_verdict_on_temper() -> None:
    first, *_ = printed(ALL_RUNS, 100)
    assert first.startswith("p-small: Temper helps: 10 helped, 0 harmed of 40 runs; 1.00")


def test_an_undecided_verdict_says_how_many_more_runs_are_needed() -> None:
    few = verdict(*DIRECT, *arm("temper", "-" * 18 + "+" * 22))
    assert few.startswith("p-small: undecided: 2 helped, 0 harmed of 40 runs; about ")
    assert "more runs needed (--seeds " in few


def test_the_verdict_says_that_temper_does_not_help_or_changes_almost_nothing() -> None:
    worse = verdict(*DIRECT, *arm("temper", "-" * 30 + "+" * 10))
    assert "Temper does not help: 0 helped, 10 harmed" in worse
    many = arm("direct", "+" * 200), arm("temper", "+" * 200)
    assert "changes almost nothing" in verdict(*many[0], *many[1])


def test_arms_that_do_not_fit_into_one_table_are_printed_in_several_tables() -> None:
    runs = [*DIRECT, *(run for n in range(12) for run in arm(f"temper-{n:08}", ALL))]
    lines = printed(runs, 80, "family")
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith(" chain") for line in lines) > 1
    assert all(any(f"{n:08}" in line for line in lines) for n in range(12))


def test_the_ceiling_of_a_real_model_is_unknown() -> None:
    ceilings = ceilings_of("p-small", DIRECT)
    assert (ceilings.perfect, ceilings.detectable) == (None, None)
    assert "ceiling unknown (only a simulated" in "\n".join(printed(DIRECT, 100))


def test_the_detectable_ceiling_includes_wrong_runs_with_a_visible_flaw() -> None:
    rejected = arm("temper-observe", "-" * 20 + "+" * 20, outcomes=["clean", "rejected"])
    observed = ceilings_of("p-small", [*DIRECT, *rejected])
    assert observed.detectable == 1.0
    clean = arm("temper-observe", "-" * 20 + "+" * 20, outcomes=["clean"])
    assert ceilings_of("p-small", [*DIRECT, *clean]).detectable == 0.5
    labelled = [structs.replace(run, flaws=["foreign"]) for run in DIRECT[:10]]
    unseen = [structs.replace(run, flaws=["wrong_value"]) for run in DIRECT[10:]]
    assert ceilings_of("p-small", [*labelled, *unseen, *clean]).detectable == 0.75


@pytest.mark.parametrize(
    ("ending", "why", "kind"),
    [
        ("answered", "missing call: book {}", "missing call"),
        ("answered", "unrequested change: book {}", "unrequested change"),
        ("answered", "needless call: book", "needless call"),
        ("answered", "the answer lacks '3'", "wrong answer"),
        ("answered", "no argument city", "other"),
        ("limit", "limit", "limit reached"),
        ("cut_off", "length", "cut off"),
        ("failed", "500", "failed request"),
    ],
)
def test_failure_class_returns_the_kind_of_failure_of_a_wrong_run(
    ending: str, why: str, kind: str
) -> None:
    assert failure_class(structs.replace(RUN, right=False, ending=ending, why=why)) == kind


def test_show_categories_prints_the_right_runs_of_a_category_with_an_interval(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = [
        RunRecord("b", arm, f"t{n}", 0, "bfcl:multiple", right=right, ending="answered", digest="")
        for arm, rights in (("direct", [True, False]), ("temper", [True, True]))
        for n, right in enumerate(rights)
    ]
    show_categories(Console(width=100), runs)
    shown = capsys.readouterr().out
    assert "bfcl:multiple" in shown
    assert "1/2 [9.5, 90.5]" in shown
    assert "2/2 [34.2, 100.0]" in shown
    show_categories(Console(width=100), [run for run in runs if run.arm == "temper"])
    assert "no call" in capsys.readouterr().out
