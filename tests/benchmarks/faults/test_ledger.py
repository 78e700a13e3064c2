"""The ledger tells which generations nobody wanted."""

from benchmarks.faults.ledger import LONGEST_OUTLIVING, Generation, Ledger

LEDGER = Ledger({1: [Generation(10, 12), Generation(12, 15)], 2: [Generation(10)]})


def problems(number: int, over: float, questions: int) -> list[str]:
    return list(LEDGER.problems(number, over, questions))


def test_generations_that_ended_with_their_client_are_right() -> None:
    assert problems(1, over=15, questions=2) == []
    assert problems(1, over=15.1 - LONGEST_OUTLIVING, questions=2) == []
    assert problems(3, over=15, questions=0) == []


def test_more_than_were_due_are_too_many() -> None:
    assert problems(1, over=15, questions=1) == ["asked 2 times, 1 at most were due"]


def test_one_that_goes_on_without_a_client_is_noticed() -> None:
    assert problems(1, over=12, questions=2) == ["a generation outlived its client by 3.0 s"]
    assert LEDGER.outlived(1, over=12) == 3


def test_those_that_have_not_ended_are_counted() -> None:
    assert LEDGER.playing == 1
