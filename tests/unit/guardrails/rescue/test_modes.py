from proxy.guardrails.rescue.modes import Beginning


def test_the_words_before_a_call_say_what_it_is() -> None:
    assert Beginning(words="For example: ").is_example
    assert Beginning(words="You could send\n").is_account
    plain = Beginning(words="Let me look.\n")
    assert (plain.is_example, plain.is_account) == (False, False)
