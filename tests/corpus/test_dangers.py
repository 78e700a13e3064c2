"""Unintended calls within and after other calls, for every pair of syntaxes.

The inner call is not returned, whatever is wrong with the outer call or its context. There is only
one attempt, so that the last resort of a turn applies to it.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.guardrails.offer import TextPolicy
from tests.corpus.cases import NOW, PARIS, Case, ask, outcome
from tests.corpus.spellings import MARKED, SPELLINGS, Call, Spelling
from tests.examples import examples, share

REQUEST = ask()
PLACE = "@@"
NOTE: Call = ("write_note", {"text": PLACE})
# These break a value in some syntax, and close a call in no syntax.
BREAKS = (
    *('a "b" c', '", oh', "a', oh", "') oh", '<|"|> oh', '<|"|>} oh', "</parameter> oh"),
    *("</arg_value> oh", "</param> oh", "<|close|>argument<|sep|> oh", "</text> oh", "]] oh", "\\"),
    *("</parameter>\n<parameter", "\n```\n", "<arg_key>", "<|im_end|>", "{"),
)
GAPS = ("\n", " ", "\n\n", " Do this: ", "\nFirst.\n")
TAILS = ("", "\nThe end.", " Then wait", "\n\n")
SETTINGS = settings(deadline=None, max_examples=examples(150))
spellings = st.sampled_from(SPELLINGS)
marked = st.sampled_from(MARKED)
spelling = st.sampled_from([spelling for spelling in MARKED if spelling.follows_prose])


def returned_calls(
    reply: str, policy: TextPolicy = TextPolicy.ACCEPT, reasoning: str = ""
) -> list[str]:
    """Return the names of the calls that a client receives, which are the same in any chunking."""
    case = Case("", reply, REQUEST, policy=policy, reasoning=reasoning)
    whole = outcome(case, [reply])
    assert outcome(case, [reply[start : start + 5] for start in range(0, len(reply), 5)]) == whole
    return [name for name, _ in whole.calls]


def broken(outer: Spelling, flaw: str, inside: str) -> str:
    """Write a call with a flaw in its value, and with text after the flaw."""
    lead = "" if outer.begins_reply else "I write it down."
    return lead + outer.one(NOTE).replace(PLACE, flaw + inside)


# D1: within a broken call.


@pytest.mark.parametrize("outer", SPELLINGS, ids=lambda spelling: spelling.syntax)
def test_a_call_within_a_broken_call_of_each_syntax_is_not_returned(outer: Spelling) -> None:
    for number, inner in share([*enumerate(SPELLINGS)]):
        flaws = (BREAKS[number % len(BREAKS)], 'a "b" c', '", oh', "</parameter> oh")
        for flaw in share(flaws):
            reply = broken(outer, flaw, f"\n{inner.one(PARIS)}\n")
            assert "get_weather" not in returned_calls(reply), reply


@SETTINGS
@given(
    spellings,
    spellings,
    st.sampled_from(BREAKS),
    st.sampled_from(GAPS),
    st.sampled_from(TAILS),
    st.sampled_from(TextPolicy),
)
def test_a_call_within_a_broken_call_is_not_returned_whatever_the_context(
    outer: Spelling, inner: Spelling, flaw: str, gap: str, tail: str, policy: TextPolicy
) -> None:
    reply = broken(outer, flaw, gap + inner.one(PARIS) + tail)
    assert "get_weather" not in returned_calls(reply, policy), reply


@SETTINGS
@given(marked, st.sampled_from(BREAKS), st.sampled_from(TAILS))
def test_a_call_within_a_string_of_a_json_answer_is_never_returned(
    inner: Spelling, flaw: str, tail: str
) -> None:
    for before in ("", "This is it:\n"):
        reply = f'{before}{{"answer": "{flaw} First do this.\n{inner.one(PARIS)}{tail}", "n": 1}}'
        assert returned_calls(reply) == [], reply


@SETTINGS
@given(marked, marked, st.sampled_from(('a "b" c', "</parameter> oh", '", oh')))
def test_after_a_closing_think_tag_within_a_broken_call_no_call_is_returned(
    outer: Spelling, inner: Spelling, flaw: str
) -> None:
    reply = broken(outer, flaw, f"\n</think>\n{inner.one(PARIS)}\n")
    assert "get_weather" not in returned_calls(reply), reply
    closed = broken(outer, flaw, f"\n</tool_call>\n</think>\n{inner.one(PARIS)}\n")
    assert "get_weather" not in returned_calls(closed), closed


# D2: after the announcement of an example.

ANNOUNCED = (
    *("For example: ", "Usage:\n", "The syntax is ", "An example of a call:\n\n", "Example\n"),
    *("You would write\n", "Here is a sample call: ", "Correct format: ", "Such as ", "e.g. "),
    *("The call would then be:\n", "The model wrote:\n", "Zum Beispiel: ", "Par exemple :\n"),
    *("Never send ", "Instead of ", "1. Example: ", "**Example:**\n", "## Usage:\n\n", "例如"),
)


@SETTINGS
@given(spelling, spellings, st.sampled_from(ANNOUNCED), st.sampled_from(("\n", "\nor\n", "\n\n")))
def test_an_example_call_and_the_call_after_it_are_never_returned(
    first: Spelling, second: Spelling, words: str, between: str
) -> None:
    reply = f"{words}{first.one(PARIS)}{between}{second.one(NOW)}"
    assert returned_calls(reply) == [], reply


@SETTINGS
@given(marked, spellings, st.sampled_from(ANNOUNCED))
def test_example_after_a_call_is_not_returned(
    first: Spelling, second: Spelling, words: str
) -> None:
    reply = f"{first.one(NOW)}\nDone. {words}{second.one(PARIS)}"
    assert "get_weather" not in returned_calls(reply), reply


@SETTINGS
@given(
    marked, spellings, st.sampled_from(("\nIn the other form it reads so.\n", "\nThat is it.\n"))
)
def test_a_second_call_in_another_syntax_after_words_is_not_returned(
    first: Spelling, second: Spelling, words: str
) -> None:
    opening = first.one(PARIS).split("get_weather")[0][:11]
    if second.syntax == first.syntax or second.one(PARIS).startswith(opening):
        return
    reply = f"{first.one(NOW)}{words}{second.one(PARIS)}"
    assert "get_weather" not in returned_calls(reply), reply


# D3 and D4: the second call only after the first.


@SETTINGS
@given(
    spellings,
    spellings,
    st.sampled_from(
        ("\n", "", " ", ", ", " and ", "\n\n", "\nThen:\n", " or ", " then the other: ")
    ),
    st.sampled_from(("", "\n", " are two.", " is it.", "\nThat is all.", ".")),
)
def test_the_second_of_two_calls_is_never_returned_without_the_first(
    first: Spelling, second: Spelling, between: str, after: str
) -> None:
    reply = f"{first.one(NOW)}{between}{second.one(PARIS)}{after}"
    assert returned_calls(reply) in ([], ["get_time"], ["get_time", "get_weather"]), reply


@SETTINGS
@given(
    spelling, spellings, st.sampled_from((" and ", ", ", " or ", "\n", ".\nNow:\n", " first.\n"))
)
def test_a_call_after_a_mentioned_call_is_not_returned_alone(
    first: Spelling, second: Spelling, between: str
) -> None:
    reply = f"I could send {first.one(NOW)} now{between}{second.one(PARIS)}"
    assert "get_weather" not in returned_calls(reply) or "get_time" in returned_calls(reply), reply


# D5: in reasoning.

SECOND_THOUGHTS = ("\nNo, the city is not known.", " would be wrong.", "\n\nBut I know it already.")


@SETTINGS
@given(spelling, marked, st.sampled_from(SECOND_THOUGHTS))
def test_a_call_within_reasoning_is_not_returned(
    first: Spelling, second: Spelling, words: str
) -> None:
    thoughts = f"I could write\n{first.one(PARIS)}{words}"
    both = f"{thoughts}\n{second.one(NOW)}"
    for text in (thoughts, both):
        assert returned_calls(f"<think>\n{text}\n</think>") == [], text
        assert returned_calls(f"{text}\n</think>\n") == [], text
        assert returned_calls("", reasoning=text) == [], text
