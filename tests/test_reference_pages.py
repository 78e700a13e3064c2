from pathlib import Path

import pytest

from tests import reference_pages

FOLDER = Path(__file__).parents[1] / "docs" / "reference"


@pytest.mark.parametrize("name", reference_pages.pages())
def test_the_reference_pages_are_current(name: str) -> None:
    """After a change, run `python -m tests.reference_pages docs/reference`."""
    assert (FOLDER / name).read_text(encoding="utf-8") == reference_pages.pages()[name]


def test_the_command_writes_every_reference_page(tmp_path: Path) -> None:
    reference_pages.write(tmp_path)
    assert {
        path.name: path.read_text("utf-8") for path in tmp_path.iterdir()
    } == reference_pages.pages()
