import importlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import PROFILE


def draw_examples() -> list[tuple[int, str]]:
    """Return the examples that Hypothesis draws for a property test."""
    examples: list[tuple[int, str]] = []

    @settings(derandomize=True)
    @given(st.integers(), st.text())
    def test(number: int, text: str) -> None:
        examples.append((number, text))

    test()
    return examples


@pytest.mark.skipif(PROFILE not in {"quick", "deep"}, reason="other profiles draw at random")
def test_hypothesis_draws_the_same_examples_after_another_module_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = draw_examples()
    module = tmp_path / "many_constants.py"
    module.write_text(f"NUMBERS = {[*range(1000, 1900)]}\nWORDS = {[*map(str, range(100))]}\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module(module.stem)
    assert draw_examples() == before
