from proxy.profiles.profile import literal_length


def test_wildcards_are_not_counted() -> None:
    assert literal_length("*qwen?3[ab]*") == 5
