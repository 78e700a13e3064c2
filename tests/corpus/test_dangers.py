"""Calls that nobody meant, within and behind others: every syntax in every other one.

Whatever is wrong with the outer call or the words around it, the inner one is not handed out: not
when the reply is judged, and not as the last resort either, for the model is asked only once.
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
# What breaks a value in one syntax or another, and closes a call in none.
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
told = st.sampled_from([one for one in MARKED if one.follows_prose])


def handed_out(
    reply: str, policy: TextPolicy = TextPolicy.ACCEPT, reasoning: str = ""
) -> list[str]:
    """Return the names of the calls that a client gets, the same however the reply arrives."""
    case = Case("", reply, REQUEST, policy=policy, reasoning=reasoning)
    whole = outcome(case, [reply])
    assert outcome(case, [reply[start : start + 5] for start in range(0, len(reply), 5)]) == whole
    return [name for name, _ in whole.calls]


def broken(outer: Spelling, flaw: str, inside: str) -> str:
    """Write a call with a flaw in its value, and with something behind the flaw."""
    lead = "" if outer.begins_reply else "I write it down."
    return lead + outer.one(NOTE).replace(PLACE, flaw + inside)


# D1: within a broken call.


@pytest.mark.parametrize("outer", SPELLINGS, ids=lambda one: one.syntax)
def test_no_call_within_a_broken_one_is_handed_out(outer: Spelling) -> None:
    for number, inner in share([*enumerate(SPELLINGS)]):
        flaws = (BREAKS[number % len(BREAKS)], 'a "b" c', '", oh', "</parameter> oh")
        for flaw in share(flaws):
            reply = broken(outer, flaw, f"\n{inner.one(PARIS)}\n")
            assert "get_weather" not in handed_out(reply), reply


@SETTINGS
@given(
    spellings,
    spellings,
    st.sampled_from(BREAKS),
    st.sampled_from(GAPS),
    st.sampled_from(TAILS),
    st.sampled_from(TextPolicy),
)
def test_no_call_within_a_broken_one_is_handed_out_whatever_stands_around_it(
    outer: Spelling, inner: Spelling, flaw: str, gap: str, tail: str, policy: TextPolicy
) -> None:
    reply = broken(outer, flaw, gap + inner.one(PARIS) + tail)
    assert "get_weather" not in handed_out(reply, policy), reply


@SETTINGS
@given(marked, st.sampled_from(BREAKS), st.sampled_from(TAILS))
def test_no_call_in_the_text_of_an_answer_in_json_is_handed_out(
    inner: Spelling, flaw: str, tail: str
) -> None:
    for before in ("", "This is it:\n"):
        reply = f'{before}{{"answer": "{flaw} First do this.\n{inner.one(PARIS)}{tail}", "n": 1}}'
        assert handed_out(reply) == [], reply


@SETTINGS
@given(marked, marked, st.sampled_from(('a "b" c', "</parameter> oh", '", oh')))
def test_the_end_of_thoughts_within_a_broken_call_is_none(
    outer: Spelling, inner: Spelling, flaw: str
) -> None:
    reply = broken(outer, flaw, f"\n</think>\n{inner.one(PARIS)}\n")
    assert "get_weather" not in handed_out(reply), reply
    closed = broken(outer, flaw, f"\n</tool_call>\n</think>\n{inner.one(PARIS)}\n")
    assert "get_weather" not in handed_out(closed), closed


# D2: behind the announcement of an example.

ANNOUNCED = (
    *("For example: ", "Usage:\n", "The syntax is ", "An example of a call:\n\n", "Example\n"),
    *("You would write\n", "Here is a sample call: ", "Correct format: ", "Such as ", "e.g. "),
    *("The call would then be:\n", "The model wrote:\n", "Zum Beispiel: ", "Par exemple :\n"),
    *("Never send ", "Instead of ", "1. Example: ", "**Example:**\n", "## Usage:\n\n", "例如"),
)


@SETTINGS
@given(told, spellings, st.sampled_from(ANNOUNCED), st.sampled_from(("\n", "\nor\n", "\n\n")))
def test_neither_an_example_nor_what_follows_it_is_handed_out(
    first: Spelling, second: Spelling, words: str, between: str
) -> None:
    reply = f"{words}{first.one(PARIS)}{between}{second.one(NOW)}"
    assert handed_out(reply) == [], reply


@SETTINGS
@given(marked, spellings, st.sampled_from(ANNOUNCED))
def test_an_example_behind_a_call_is_not_handed_out(
    first: Spelling, second: Spelling, words: str
) -> None:
    reply = f"{first.one(NOW)}\nDone. {words}{second.one(PARIS)}"
    assert "get_weather" not in handed_out(reply), reply


@SETTINGS
@given(
    marked, spellings, st.sampled_from(("\nIn the other form it reads so.\n", "\nThat is it.\n"))
)
def test_behind_words_a_call_in_another_syntax_is_not_handed_out(
    first: Spelling, second: Spelling, words: str
) -> None:
    opening = first.one(PARIS).split("get_weather")[0][:11]
    if second.syntax == first.syntax or second.one(PARIS).startswith(opening):
        return
    reply = f"{first.one(NOW)}{words}{second.one(PARIS)}"
    assert "get_weather" not in handed_out(reply), reply


# D3 and D4: in their order, or not at all.


@SETTINGS
@given(
    spellings,
    spellings,
    st.sampled_from(
        ("\n", "", " ", ", ", " and ", "\n\n", "\nThen:\n", " or ", " then the other: ")
    ),
    st.sampled_from(("", "\n", " are two.", " is it.", "\nThat is all.", ".")),
)
def test_of_two_calls_the_later_one_is_never_handed_out_alone(
    first: Spelling, second: Spelling, between: str, behind: str
) -> None:
    reply = f"{first.one(NOW)}{between}{second.one(PARIS)}{behind}"
    assert handed_out(reply) in ([], ["get_time"], ["get_time", "get_weather"]), reply


@SETTINGS
@given(told, spellings, st.sampled_from((" and ", ", ", " or ", "\n", ".\nNow:\n", " first.\n")))
def test_behind_a_call_that_is_only_mentioned_none_is_handed_out(
    first: Spelling, second: Spelling, between: str
) -> None:
    reply = f"I could send {first.one(NOW)} now{between}{second.one(PARIS)}"
    assert "get_weather" not in handed_out(reply) or "get_time" in handed_out(reply), reply


# D5: in thoughts.

SECOND_THOUGHTS = ("\nNo, the city is not known.", " would be wrong.", "\n\nBut I know it already.")


@SETTINGS
@given(told, marked, st.sampled_from(SECOND_THOUGHTS))
def test_a_call_that_the_thoughts_go_on_behind_is_not_handed_out(
    first: Spelling, second: Spelling, words: str
) -> None:
    thoughts = f"I could write\n{first.one(PARIS)}{words}"
    both = f"{thoughts}\n{second.one(NOW)}"
    for text in (thoughts, both):
        assert handed_out(f"<think>\n{text}\n</think>") == [], text
        assert handed_out(f"{text}\n</think>\n") == [], text
        assert handed_out("", reasoning=text) == [], text
