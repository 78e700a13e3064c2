import pytest

from proxy.guardrails.rescue.position import Position, is_in_sentence, is_separate

MARKED, TOKEN = '<tool_call>{"name": "look"}</tool_call>', '<|tool_call|>{"name": "look"}'
LINES = MARKED.replace("{", "\n{")
START = Position("<tool_call>")
WITHIN = Position("<tool_call>", begins_reply=False, is_sentence_start=False, follows_space=True)


@pytest.mark.parametrize(("words", "is_example"), [("For example: ", True), ("I look.\n", False)])
def test_a_call_is_an_example_if_the_words_before_it_introduce_an_example(
    words: str, is_example: bool
) -> None:
    assert Position(words=words).is_example is is_example


@pytest.mark.parametrize(
    ("opening", "words", "is_within"),
    [
        (" {", "Here it is:", True),
        (" {", "I'll check the weather:", False),
        (" {", "I'll use", True),
        ("{", "You only have to send\n", True),
        ("{", "Here it is:\n", False),
        ("{", "", False),
    ],
)
def test_the_words_before_a_plain_call_decide_whether_it_belongs_to_their_sentence(
    opening: str, words: str, is_within: bool
) -> None:
    assert is_in_sentence(Position(opening, words=words), ["get_weather"]) is is_within


@pytest.mark.parametrize(
    ("text", "source", "position", "result"),
    [
        ("Then more.", MARKED, START, True),
        ("Then more.", MARKED, WITHIN, False),
        *((text, MARKED, START, False) for text in ("and more", ", too", ".", "{x}", "123")),
        *(("because of it", source, START, True) for source in (TOKEN, LINES)),
        *(("because of it", source, WITHIN, False) for source in (TOKEN, LINES)),
        *(("Then more", source, WITHIN, True) for source in (TOKEN, LINES)),
        *((text, TOKEN, START, False) for text in ("is it.", "is!\nMore", '" he said', "` and")),
    ],
)
def test_the_text_after_a_call_decides_whether_the_call_is_separate(
    text: str, source: str, position: Position, result: bool
) -> None:
    assert is_separate(text, source, position, is_all=True) is result


@pytest.mark.parametrize("text", ["wo", "a", "and more."])
def test_whether_a_call_is_separate_is_unknown_if_more_text_is_needed(text: str) -> None:
    assert is_separate(text, TOKEN, START, is_all=False) is None
    assert is_separate("And", TOKEN, START, is_all=False) is True
    assert is_separate(text, MARKED, START, is_all=False) is False
