import random

import pytest

from temper_evals.tiny_model.values import DOMAIN, NUMBERS, ValueDraw, is_held_out

KINDS = [*DOMAIN["values"], *NUMBERS, "word", "path", "code", "sentence"]


def drawn(kind: str, *, held_out: bool = False) -> list[str | int]:
    values = ValueDraw(random.Random(1), held_out=held_out)
    return [values.value(kind) for _ in range(200)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_has_many_values_of_one_type_and_the_same_every_time(kind: str) -> None:
    found = drawn(kind)
    assert len(set(found)) > 1
    assert {type(one) for one in found} == {int if kind in NUMBERS else str}
    assert found == drawn(kind)


def test_numbers_stay_between_their_bounds() -> None:
    for kind, (least, most) in NUMBERS.items():
        found = [one for one in drawn(kind) if isinstance(one, int)]
        assert min(found) >= least
        assert max(found) <= most


@pytest.mark.parametrize("kind", ["word", "city", "person", "path"])
def test_what_is_held_out_is_never_drawn_for_training(kind: str) -> None:
    assert not {*drawn(kind)} & {*drawn(kind, held_out=True)}


def test_about_every_sixth_word_is_held_out() -> None:
    values = ValueDraw(random.Random(2)), ValueDraw(random.Random(2), held_out=True)
    shown, kept = ([one.word() for _ in range(100)] for one in values)
    assert not any(map(is_held_out, shown))
    assert all(map(is_held_out, kept))
