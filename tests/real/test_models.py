"""Reports a missing model; without a model, no other file of this folder is run."""

from pathlib import Path

import pytest

from tests.real.models import NEEDING_A_MODEL, chosen, missing


def test_a_model_file_is_configured() -> None:
    if not chosen():
        pytest.skip(missing())


def test_every_other_file_of_the_folder_is_listed_as_needing_a_model() -> None:
    files = {file.stem.removeprefix("test_") for file in Path(__file__).parent.glob("test_*.py")}
    assert files == {"models", *NEEDING_A_MODEL}
