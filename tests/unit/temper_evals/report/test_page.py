import re
from pathlib import Path

import pytest
from msgspec import structs

from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.records import Records
from temper_evals.report.page import page, write_page
from temper_evals.report.table import rows
from temper_evals.results import results_of
from tests.unit.temper_evals.test_results import runs_of

PROTOCOL: JsonObject = {"hash": "abc", "temper": "1.0", "python": "3.11"}
ARMS = {"direct": "++--", "temper": "-+++", "ceiling": "++++"}
RUNS = [
    structs.replace(run, bed=bed)
    for bed in ("n-8b", "n-8b@low-low-low")
    for arm, pattern in ARMS.items()
    for run in runs_of(arm, pattern)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    records = Records(folder, PROTOCOL)
    for run in RUNS:
        records.add(run)
        records.keep_transcript(run, [{"role": "assistant", "content": f"<b>{run.arm}</b>"}])
    records.close()
    return folder


@pytest.fixture(scope="module")
def shown(folder: Path) -> str:
    """Make the page once for all tests, because drawing its plots takes most of a second."""
    return page(folder, PROTOCOL, RUNS)


@pytest.fixture
def without_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("temper_evals.report.page._pictures", lambda _results: [])


def without_pictures(text: str) -> str:
    return re.sub(r"<(svg|style|script).*?</\1>", "", text, flags=re.DOTALL)


@pytest.mark.deep
def test_the_table_of_the_page_has_the_values_computed_from_the_records(shown: str) -> None:
    cells = re.findall(r"<td>(.*?)</td>", shown.partition("</table>")[0])
    assert cells == [cell for row in rows(results_of(RUNS)) for cell in row]


@pytest.mark.deep
def test_the_page_has_different_numbers_for_different_records(folder: Path, shown: str) -> None:
    def numbers(text: str) -> list[str]:
        return re.findall(r"\d+\.\d+", without_pictures(text))

    other = [structs.replace(run, right=True, prompt=7) for run in RUNS]
    assert numbers(shown) == numbers(page(folder, PROTOCOL, RUNS))
    assert numbers(shown) != numbers(page(folder, PROTOCOL, other))


def test_the_page_loads_nothing_from_the_network(shown: str) -> None:
    assert not re.findall(r"""(?:src|href)\s*=(?!"data:)|url\(|@import|fetch\(|https?://""", shown)


@pytest.mark.usefixtures("without_drawing")
def test_the_page_shows_both_transcripts_of_each_harmed_case_escaped(
    folder: Path,
) -> None:
    text = page(folder, PROTOCOL, RUNS)
    assert text.count("<details>") == 2
    assert "&lt;b&gt;direct&lt;/b&gt;" in text
    assert "&lt;b&gt;temper&lt;/b&gt;" in text
    assert "<b>" not in text
    unharmed = [run for run in RUNS if run.arm != "temper"]
    assert "<p>None.</p>" in page(folder, PROTOCOL, unharmed)


@pytest.mark.usefixtures("without_drawing")
def test_the_page_shows_the_options_of_the_evaluation_and_the_number_of_failed_runs(
    folder: Path,
) -> None:
    def options_text(**choice: JsonValue) -> str:
        return page(folder, {**PROTOCOL, "choice": choice}, RUNS)

    assert f"{len(RUNS)} runs with the suite full, 5 seeds." in options_text(suite="full", seeds=5)
    assert "with the scenarios of mine, 1 seed." in options_text(scenarios="mine", seeds=1)
    assert f"{len(RUNS)} runs." in page(folder, PROTOCOL, RUNS)
    failed = [structs.replace(run, ending="failed", why="<404>") for run in RUNS]
    shown = page(folder, PROTOCOL, failed)
    assert "n-8b direct: 4 of 4 runs failed, most often because: &lt;404&gt;" in shown


@pytest.mark.usefixtures("without_drawing")
def test_the_page_marks_held_out_families_with_an_asterisk(folder: Path) -> None:
    assert "second author" not in page(folder, PROTOCOL, RUNS)
    held_out = [structs.replace(run, family="travel") for run in RUNS]
    shown = page(folder, PROTOCOL, [*RUNS, *held_out])
    assert "<th>travel*</th>" in shown
    assert "<th>chain</th>" in shown
    assert "second author" in shown


@pytest.mark.usefixtures("without_drawing")
def test_the_page_states_the_limitations_of_simulated_or_real_models(folder: Path) -> None:
    assert "A simulated model shows the effect" in page(folder, PROTOCOL, RUNS)
    real = page(folder, PROTOCOL, [structs.replace(run, bed="127.0.0.1:8080") for run in RUNS])
    assert "A simulated model" not in real
    assert "and not to others" in real.replace("\n", " ")


def test_write_page_writes_one_html_file(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(path, folder, PROTOCOL, RUNS)
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
