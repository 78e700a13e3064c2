import random

from benchmarks.tiny.copying import LENGTHS, draw_row

ROWS = [draw_row(random.Random(seed), 10, 500) for seed in range(200)]


def test_rows_have_every_length_and_tokens_of_the_vocabulary_only() -> None:
    assert {len(tokens) for tokens, _ in ROWS} == {*LENGTHS}
    assert all(len(tokens) == len(weights) for tokens, weights in ROWS)
    assert all(10 <= token < 500 for tokens, _ in ROWS for token in tokens)


def test_what_counts_can_be_copied_from_what_stands_before_it() -> None:
    for tokens, weights in ROWS:
        assert sum(weights) > 0
        for place, weight in enumerate(weights):
            pair = tokens[place - 1 : place + 1]
            earlier = [tokens[n : n + 2] for n in range(place - 1)]
            assert weight in (0.0, 1.0)
            assert not weight or pair in earlier


def test_a_row_is_the_same_every_time() -> None:
    assert draw_row(random.Random(7), 0, 500) == draw_row(random.Random(7), 0, 500)
