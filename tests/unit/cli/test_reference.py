from pathlib import Path

import pytest

from proxy.cli import reference

FOLDER = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize("name", reference.pages())
def test_the_pages_are_as_the_code_is(name: str) -> None:
    """After a change: `python -m proxy.cli.reference docs/reference`."""
    assert (FOLDER / name).read_text(encoding="utf-8") == reference.pages()[name]


def test_every_page_is_written(tmp_path: Path) -> None:
    reference.write(tmp_path)
    assert {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()} == reference.pages()
