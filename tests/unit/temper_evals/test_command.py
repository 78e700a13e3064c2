import re
import tempfile
from pathlib import Path

import pytest
from click.testing import Result

from proxy.conversation import json
from tests.fakes.invoked import document, temper

SMALL = ("--family", "single", "--profile", "healthy", "--arms", "direct, ceiling", "--pace", "0")


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # without --output, the results are stored in the temporary directory
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def evaluate(*arguments: str) -> Result:
    return temper("eval", *arguments)


def test_the_printed_table_has_the_arms_as_rows_and_columns_such_as_helped_and_harmed() -> None:
    done = evaluate(*SMALL, "--output", "out")
    assert done.exit_code == 0
    for word in ("direct", "ceiling", "helped", "harmed", "gen.", "100.0"):
        assert word in done.stdout
    assert len(Path("out/runs.jsonl").read_bytes().splitlines()) == 12


def test_help_lists_arms_and_profiles() -> None:
    text = " ".join(evaluate("--help").stdout.split())
    for word in ("Arms: direct,", "temper-without-X", "temper-tuned", "Profiles: coder-0.5b,"):
        assert word in text


def test_report_shows_families_and_failures_only_if_the_option_by_is_set() -> None:
    evaluate(*SMALL, "--output", "out")
    assert "by family" not in evaluate("report", "out").stdout
    output = evaluate("report", "out", "--by", "family", "--by", "failure").stdout
    assert "right runs by family" in output
    assert "wrong runs by cause" in output


def test_the_runs_are_stored_in_a_temporary_folder_if_no_output_is_given() -> None:
    done = evaluate(*SMALL, "--json")
    report = json.parse(done.stdout)
    assert isinstance(report, dict)
    assert Path(str(report["folder"])).is_dir()


def test_report_with_the_flag_progress_lists_the_missing_runs_that_resume_makes() -> None:
    evaluate(*SMALL, "--output", "out")
    path = Path("out/runs.jsonl")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:7]))
    assert "healthy ceiling: 5 runs missing" in evaluate("report", "out", "--progress").stdout
    assert evaluate("--resume", "out", "--json").exit_code == 0
    assert evaluate("report", "out", "--progress").stdout == ""


def test_a_report_is_available_as_text_json_html_and_markdown() -> None:
    evaluate(*SMALL, "--output", "out")
    assert "healthy" in evaluate("report", "out").stdout
    assert json.parse(evaluate("report", "out", "--json").stdout)
    assert evaluate("report", "out", "--html", "page.html").exit_code == 0
    table = evaluate("report", "out", "--markdown").stdout
    assert table.startswith("| bed | arm | runs |")
    priced = evaluate("report", "out", "--markdown", "--price", "0.15", "0.6").stdout
    assert "| price of 1000 runs |" in priced.splitlines()[0]
    assert "</html>" in Path("page.html").read_text() or "<table" in Path("page.html").read_text()


def test_compare_fails_only_if_the_second_evaluation_is_worse() -> None:
    evaluate(*SMALL, "--output", "out")
    same = evaluate("compare", "out", "out")
    assert same.exit_code == 0
    assert "not worse" in same.stdout
    path = Path("out/runs.jsonl")
    lines = path.read_bytes()
    Path("worse").mkdir()
    Path("worse/protocol.json").write_bytes(Path("out/protocol.json").read_bytes())
    Path("worse/runs.jsonl").write_bytes(lines.replace(b'"right":true', b'"right":false'))
    worse = evaluate("compare", "out", "worse", "--json")
    assert worse.exit_code == 1
    assert "true" in worse.stdout


def test_eval_writes_a_card_that_eval_cards_accepts_only_under_its_file_name() -> None:
    done = evaluate(*SMALL, "--output", "out", "--card", "card.json")
    assert done.exit_code == 0
    assert "The card: card.json." in done.stderr
    assert "  direct: 6 of 6 right, " in done.stderr
    name = re.search(r"docs/results/(\S+)", done.stderr)
    assert name
    Path("cards").mkdir()
    assert evaluate("report", "out", "--card", f"cards/{name[1]}").exit_code == 0
    checked = evaluate("cards", "cards")
    assert checked.exit_code == 0
    assert "| healthy (simulated) | quick, 6 tasks | - | - | " in checked.stdout
    Path("cards/ada.json").write_bytes(Path("card.json").read_bytes())
    checked = evaluate("cards", "cards", "--json")
    assert checked.exit_code == 1
    assert f"ada.json: must be named {name[1]}" in checked.stdout
    again = evaluate("--resume", "out", "--card", "other.json", "--json")
    assert again.exit_code == 0
    assert Path("other.json").read_bytes() == Path("card.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--card", "out.json"), "--card: out.json already exists: pass another name"),
        (("--card", "none/out.json"), "--card: there is no folder none: create it"),
        (("--card", "new.json", "--profile", "q4"), "a card is about one model (got 2)"),
        (("--card", "new.json", "--scenarios", "."), "remove --scenarios"),
    ],
)
def test_a_card_that_cannot_be_written_is_refused_before_the_runs(
    arguments: tuple[str, ...], problem: str
) -> None:
    Path("out.json").write_text("mine")
    done = evaluate(*SMALL, "--output", "out", *arguments)
    assert done.exit_code == 1
    assert problem in done.stderr
    assert not Path("out/runs.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--suite", "half"), "unknown suite"),
        (("cards", "nowhere"), "nowhere is not a folder"),
        (("--arms", "tamper"), "no arm"),
        (("--profile", "large"), "unknown profile 'large'"),
        (("--resume", "nowhere"), "no evaluation"),
        (("report", "nowhere"), "no evaluation"),
        (("compare", "nowhere", "nowhere"), "no evaluation"),
        (("--resume", "nowhere", "--seeds", "3"), "remove --seeds"),
        (("--backend-url", "http://127.0.0.1:9"), "no server answers"),
    ],
)
def test_standard_error_says_what_is_wrong_with_each_wrong_option(
    arguments: tuple[str, ...], problem: str
) -> None:
    done = evaluate(*arguments)
    assert done.exit_code == 1
    assert problem in done.stderr


def test_eval_into_the_folder_of_an_evaluation_with_other_options_fails() -> None:
    evaluate(*SMALL, "--output", "out")
    other = evaluate(*SMALL, "--output", "out", "--seeds", "2")
    assert other.exit_code == 1
    assert "--resume out" in other.stderr


def test_failed_runs_are_reported_below_the_table_and_in_json() -> None:
    evaluate(*SMALL, "--output", "out")
    path = Path("out/runs.jsonl")
    answered, failed = b'"ending":"answered"', b'"ending":"failed","why":"500 oh no"'
    path.write_bytes(path.read_bytes().replace(answered, failed, 2))
    warning = "healthy direct: 2 of 6 runs failed, most often because: 500 oh no"
    assert warning in evaluate("report", "out").stdout
    assert document(evaluate("report", "out", "--json"))["failures"] == [warning]


def test_an_error_is_printed_as_json_if_the_flag_json_is_set() -> None:
    done = evaluate("--suite", "half", "--json")
    assert done.exit_code == 1
    assert json.parse(done.stdout)


def test_without_a_required_library_the_error_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("temper_evals.evaluation._LIBRARIES", ("jinja2", "no_such_library"))
    for arguments in (SMALL, ("report", "out"), ("compare", "out", "out")):
        done = evaluate(*arguments)
        assert done.exit_code == 1
        assert "needs no_such_library" in done.stderr
        assert "pip install 'temper-proxy[evals]'" in done.stderr


def test_eval_list_prints_the_tasks_with_any_of_the_given_tags() -> None:
    lines = evaluate("--list", "--tag", "rules", "--tag", "single").stdout.splitlines()
    names = [line.split()[0].rpartition("-")[0] for line in lines]
    assert names == ["single"] * 6 + ["ordered"] * 4
    assert lines[-1].split(None, 1) == ["ordered-3", "ordered, several-steps, rules"]
    listed = document(evaluate("--list", "--tag", "rules", "--json"))
    assert isinstance(listed["tasks"], list)
    assert listed["tasks"][0] == {
        "name": "ordered-0",
        "tags": ["ordered", "several-steps", "rules"],
    }


def test_eval_task_runs_one_task_with_two_profiles_and_prints_one_table() -> None:
    models = ("--profile", "healthy", "--profile", "p-small")
    done = evaluate(*models, "--task", "chain-1", "--pace", "0", "--output", "out")
    assert done.exit_code == 0, done.stderr
    runs = [json.parse(line) for line in Path("out/runs.jsonl").read_bytes().splitlines()]
    assert {run["scenario"] for run in runs if isinstance(run, dict)} == {"chain-1"}
    lines = done.stdout.splitlines()
    heading = next(line for line in lines if "right % by model" in line)
    assert {"direct", "temper", "harmed"} <= {*heading.split()}
    table = lines[lines.index(heading) :]
    assert [line.split()[0] for line in table[2:4]] == ["healthy", "p-small"]


def test_eval_tag_runs_only_the_tasks_with_the_tag() -> None:
    flags = ("--tag", "quoted", "--profile", "healthy", "--arms", "direct", "--pace", "0")
    assert evaluate(*flags, "--output", "out").exit_code == 0
    runs = [json.parse(line) for line in Path("out/runs.jsonl").read_bytes().splitlines()]
    assert {run["family"] for run in runs if isinstance(run, dict)} == {"trap"}
    other = evaluate(*flags, "--tag", "errors", "--output", "out")
    assert "tags" in other.stderr


def test_the_error_for_an_unknown_tag_lists_the_known_tags() -> None:
    done = evaluate("--tag", "slow", "--family", "failing", "--arms", "direct")
    assert done.exit_code == 1
    message = "--tag: no task has the tag 'slow'; known: errors (4), failing (4), several-steps (4)"
    assert message in " ".join(done.stderr.split())
