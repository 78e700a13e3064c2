from temper_evals.simulated.draws import draws_of, uniform


def test_uniform_returns_the_same_value_only_for_the_same_key() -> None:
    assert uniform(1, "chain-2", 0, 0, "flaw") == uniform(1, "chain-2", 0, 0, "flaw")
    keys = [(seed, name, step) for seed in range(9) for name in "ab" for step in range(9)]
    assert len({uniform(*key) for key in keys}) == len(keys)
    assert draws_of(1, "a").random() == draws_of(1, "a").random()


def test_uniform_returns_different_values_for_different_splits_of_the_same_text() -> None:
    assert uniform("ab", "c") != uniform("a", "bc")


def test_the_values_of_uniform_are_evenly_distributed() -> None:
    draws = [uniform(number, "x") for number in range(20_000)]
    tenths = [sum(tenth / 10 <= draw < (tenth + 1) / 10 for draw in draws) for tenth in range(10)]
    assert all(abs(count - 2000) < 120 for count in tenths)  # 2.8 standard deviations
