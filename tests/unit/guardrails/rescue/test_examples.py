from proxy.guardrails.rescue.examples import presents


def test_a_call_is_presented_with_few_words() -> None:
    for words in (
        "Here's the tool call:",
        "So here is the function call: ",
        "HERE'S THE TOOL-CALL.",
    ):
        assert presents(words)
    for words in ("Here's a tool call:", "Here is the call", "Here is the tool call that failed:"):
        assert not presents(words)
