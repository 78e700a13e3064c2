"""A short, reproducible run over broken replies; `tests.fuzz.rescue` runs for longer."""

import pytest

from tests.examples import examples
from tests.fuzz.replies import dictionary, fuzz_one, mutations, seeds

RUNS = 20
EACH = examples(100)


@pytest.mark.parametrize("seed", range(RUNS))
def test_mutated_replies_raise_no_unexpected_exception(seed: int) -> None:
    for data in mutations(EACH, seed):
        try:
            fuzz_one(data)
        except BaseException as error:
            error.add_note(f"fuzz_one({data!r})")
            raise


def test_there_are_more_than_500_replies_to_mutate() -> None:
    assert len(seeds()) > 500
    assert "<tool_call>" in dictionary()
    assert len(set(mutations(100, 0))) == 100
