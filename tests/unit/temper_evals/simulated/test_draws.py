from temper_evals.simulated.draws import draws_of, uniform


def test_the_same_key_has_the_same_luck_and_another_one_another() -> None:
    assert uniform(1, "chain-2", 0, 0, "flaw") == uniform(1, "chain-2", 0, 0, "flaw")
    keys = [(seed, name, step) for seed in range(9) for name in "ab" for step in range(9)]
    assert len({uniform(*key) for key in keys}) == len(keys)
    assert draws_of(1, "a").random() == draws_of(1, "a").random()


def test_a_key_is_more_than_its_letters() -> None:
    assert uniform("ab", "c") != uniform("a", "bc")


def test_draws_are_spread_evenly() -> None:
    found = [uniform(number, "x") for number in range(20_000)]
    tenths = [sum(tenth / 10 <= one < (tenth + 1) / 10 for one in found) for tenth in range(10)]
    assert all(abs(one - 2000) < 120 for one in tenths)  # within 2.8 deviations
