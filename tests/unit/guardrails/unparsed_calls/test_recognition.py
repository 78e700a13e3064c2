from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation.tools import Tool
from proxy.guardrails.unparsed_calls.recognition import looks_like_call, may_become_call
from tests.fakes.arrivals import is_linear
from tests.fakes.unread_calls import ANSWERS, CALLS, HELD, SEEN, TOOLS
from tests.unit.guardrails.announcements import test_recognition
from tests.unit.guardrails.announcements.test_recognition import (
    ENGLISH_ANNOUNCEMENTS as ANNOUNCEMENTS,
)
from tests.unit.guardrails.announcements.test_recognition import ENGLISH_ANSWERS as OTHER_ANSWERS

HARMONY = HELD[0]
PROSE = (
    *(announcement for announcement in ANNOUNCEMENTS if not announcement.startswith("Calling")),
    *OTHER_ANSWERS,
    *(announcement for many in test_recognition.ANNOUNCEMENTS.values() for announcement in many),
)
JSON = '{"tool": "get_weather", "city": "Paris"}'
pieces = st.lists(
    st.sampled_from(
        (
            *("get_weather", "search", "city", "query", "tool_call", "function", "name", "Paris"),
            *(
                "<",
                ">",
                "</",
                "<|",
                "|>",
                "{",
                "}",
                "[",
                "]",
                "(",
                ")",
                '"',
                "'",
                "=",
                ":",
                ",",
                "`",
            ),
            *(
                "```",
                " ",
                "\n",
                "<parameter=city>",
                "</parameter>",
                "<city>",
                "\\",
                "7",
                "to=",
                "It is",
            ),
        )
    ),
    max_size=30,
).map("".join)
replies = st.one_of(
    st.text(max_size=60), pieces, st.tuples(st.sampled_from(HELD), pieces).map("".join)
)


@pytest.mark.parametrize("text", CALLS)
def test_a_reply_that_consists_of_a_call_looks_like_a_call(text: str) -> None:
    assert looks_like_call(text, TOOLS)
    assert looks_like_call(f"\n{text}\n", TOOLS)


@pytest.mark.parametrize("text", ANSWERS)
def test_a_reply_that_may_be_an_answer_does_not_look_like_a_call(text: str) -> None:
    assert not looks_like_call(text, TOOLS)


@pytest.mark.parametrize("text", PROSE)
def test_prose_does_not_look_like_a_call_or_its_prefix(text: str) -> None:
    assert not looks_like_call(text, TOOLS)
    assert not text or not may_become_call(text, TOOLS)


@pytest.mark.parametrize("text", CALLS)
def test_a_call_with_words_before_or_after_it_is_an_answer(text: str) -> None:
    assert not looks_like_call(f"This is it: {text}", TOOLS)
    assert not looks_like_call(f"{text} was called (or not)", TOOLS)


@pytest.mark.parametrize("text", CALLS)
def test_a_call_of_a_tool_that_is_not_offered_is_an_answer(text: str) -> None:
    assert not looks_like_call(text, ())


@pytest.mark.parametrize(
    "prompt",
    [
        HARMONY,
        f"It said:\n{HARMONY.replace(' ', '  ')}\nand stopped.",
        "tool_call: get_weather(city=Paris)",
        "How is get_weather called?",
        "What would you write to call get_weather for Paris?",
        f"{'get_weather ' * 2}{'x' * 90}\nget_weather: an example",
    ],
)
def test_a_call_quoted_from_the_prompt_is_an_answer(prompt: str) -> None:
    assert not looks_like_call(HARMONY, TOOLS, ("Hi", prompt))


@pytest.mark.parametrize(
    "prompt",
    [
        "How is the weather in Paris?",
        "Use get_weather for Paris.",
        f"An example is far away.{'x' * 90} get_weather",
        f"{'get_weather ' * 40}{'x' * 90} an example of get_weather",
    ],
)
def test_a_call_that_the_prompt_does_not_quote_remains_a_call(prompt: str) -> None:
    assert looks_like_call(HARMONY, TOOLS, (prompt,))


def test_json_is_an_answer_if_the_user_requested_json() -> None:
    assert looks_like_call(JSON, TOOLS, ("The weather in Paris, please.",))
    assert not looks_like_call(JSON, TOOLS, ("Answer in JSON, please.",))
    assert looks_like_call(HARMONY, TOOLS, ("Answer in JSON, please.",))


def test_a_call_of_a_tool_without_declared_parameters_must_have_no_arguments() -> None:
    free = Tool("get_time", parameters=True, source=b"{}")
    assert looks_like_call("to=functions.get_time json{}", (free,))
    assert not looks_like_call('to=functions.get_time json{"zone": "UTC"}', (free,))


@pytest.mark.parametrize("text", HELD)
def test_every_prefix_of_a_call_may_become_a_call(text: str) -> None:
    assert all(may_become_call(text[:end], TOOLS) for end in range(len(text) + 1))


@pytest.mark.parametrize(
    "text", [*SEEN, "It", "I", "Th", "**", "- ", "1", "(a", "# A", "| a", "够用"]
)
def test_the_first_letters_of_prose_cannot_become_a_call(text: str) -> None:
    assert not may_become_call(text, TOOLS)


@pytest.mark.parametrize(
    "text",
    [
        "the",
        "tools are",
        '{"a',
        '["Paris',
        '["tool", "Paris',
        "```py",
        "``p",
        "get_weather is",
        "get_weather city ",
        "get_weather city Paris",
        "<div>\n<p",
        '<div class="a">',
        "tool " * 40,
        "to" + " " * 200,
        "get_weather(city: str, ",
        "get_weather{city: Paris} so ",
        "get_weather" + " " * 200 + "is",
        "get_weather(city=1) ```",
    ],
)
def test_the_first_words_of_prose_or_data_or_code_cannot_become_a_call(text: str) -> None:
    assert not may_become_call(text + "x", TOOLS)


@given(replies)
def test_every_prefix_of_a_text_that_looks_like_a_call_may_become_a_call(text: str) -> None:
    if looks_like_call(text, TOOLS) and not text.strip()[0].isupper():
        assert all(may_become_call(text[:end], TOOLS) for end in range(len(text) + 1))


@given(st.text(max_size=40), st.sampled_from(CALLS))
def test_looks_like_call_gives_the_same_result_for_the_same_text(text: str, call: str) -> None:
    for variant in (text, text + call, call + text):
        assert looks_like_call(variant, TOOLS) is looks_like_call(variant, TOOLS)


@pytest.mark.parametrize(
    "text",
    [
        lambda size: f'{HARMONY[:-7]}{"x y" * size}"}}',
        lambda size: f'{HARMONY[:-7]}{chr(92) + "n" * size}"}}',
        lambda size: f"{HARMONY}{' ' * size}}}",
        lambda size: f"{HARMONY[:36]}{'<' * size}>",
        lambda size: f"{HARMONY[:36]}{'<a ' * size}>",
        lambda size: f"{HARMONY[:36]}{'<city>' * size}>",
        lambda size: f"{HARMONY[:36]}{chr(34) * size}}}",
        lambda size: f"get_weather {'city=1,' * size}}}",
        lambda size: f"<parameter=city>{'x </' * size}</parameter>get_weather>",
    ],
)
def test_recognizing_a_call_takes_linear_time(text: Callable[[int], str]) -> None:
    assert is_linear(lambda sample: looks_like_call(sample, TOOLS), text, 200_000)
    assert is_linear(lambda sample: may_become_call(sample, TOOLS), text, 200_000)
