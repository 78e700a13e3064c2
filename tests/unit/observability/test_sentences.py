import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import facts
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import TemperError
from proxy.facts import WORDS, Fact
from proxy.guardrails.rescue.syntax import Reason
from proxy.guardrails.retry import AttemptKind
from proxy.guardrails.verdict import Defect
from proxy.observability.live_request import word_for
from proxy.observability.sentences import (
    attempt_sentence,
    cut,
    escape,
    problem_sentence,
    sentences,
    summarize,
    visible_json,
)


def test_escape_does_not_change_printable_text_of_any_script() -> None:
    assert escape("naïve 日本語 🙂") == "naïve 日本語 🙂"


def test_escape_replaces_control_characters_and_line_breaks_by_visible_codes() -> None:
    assert escape("a\nb\x1b[31m\u202e\\") == r"a\nb\x1b[31m\u202e\\"


def test_visible_json_escapes_invisible_characters_and_decodes_to_the_value() -> None:
    value: JsonObject = {"a\u202e": ["\x1b\x7f\x00\u2028\n\\u202e", "日本 🙂"], "n": 2**70}
    shown = visible_json(value)
    assert shown == (
        '{\n  "a\\u202e": [\n'
        '    "\\u001b\\u007f\\u0000\\u2028\\n\\\\u202e",\n'
        '    "日本 🙂"\n  ],\n'
        '  "n": 1180591620717411303424\n}'
    )
    assert json.parse(shown) == value
    assert visible_json("\U000e0041") == '"\\udb40\\udc41"'


@given(st.recursive(st.text() | st.integers() | st.booleans() | st.none(), st.lists))
def test_visible_json_is_printable_and_decodes_to_the_value(value: JsonValue) -> None:
    shown = visible_json(value)
    assert all(line.isprintable() for line in shown.split("\n"))
    assert json.parse(shown) == value


SENTENCES: tuple[tuple[Fact, str], ...] = (
    (facts.Rescued("hermes", "look"), "A call of look written as text (hermes) was recognized."),
    (facts.Repaired("look"), "Invalid JSON in a call of look was repaired."),
    (facts.Coerced("look", "/days"), "/days of look was converted to the right type."),
    (facts.Coerced("look", ""), "A value of look was converted to the right type."),
    (facts.Renamed("Look", "look"), "The unknown tool Look was corrected to look."),
    (facts.Dropped("code_fence"), "The code fence around the answer was removed."),
    (facts.Dropped("new"), "A part of the reply was removed (new)."),
    (facts.RejectedReply("empty"), "The reply was empty."),
    (facts.RejectedReply("new"), "The reply was rejected (new)."),
    (facts.Healed("call_id"), "The history was repaired: an id was added to a call."),
    (
        facts.Refused(Reason.IN_SENTENCE),
        "Text that looked like a call was kept as text (in sentence).",
    ),
    (
        facts.EndedThoughts(),
        "The reply ended a reasoning block that it had not begun; in later replies, text before "
        "such an end mark is treated as reasoning.",
    ),
    (facts.Unchecked("look", "no schema"), "The arguments of look were not validated: no schema."),
    (
        facts.Omitted("web_search"),
        "A part of the request is not supported here and was ignored (web_search).",
    ),
    (
        facts.ReasoningRestored(2),
        "The reasoning of 2 messages, which the client omitted, was put back.",
    ),
    (facts.RuleSkipped("look"), "An order rule was skipped: the request does not offer look."),
    (facts.LoopNoticed("look", 3), "look was called 3 times with the same result."),
    (
        facts.FailuresNoticed(3),
        "All calls of the last 3 tool rounds failed; a hint was added to the prompt.",
    ),
    (facts.RoundsMade(60), "The model has called tools in 60 rounds since the last user message."),
    (facts.RoundsExceeded(9), "After 9 tool rounds the model was prompted for a text answer."),
    (
        facts.AnswerLimited(900),
        "The answer was limited to 900 tokens, the space left in the window.",
    ),
    (
        facts.Resent(),
        "A server failed during its generation; the request was sent to another server.",
    ),
    (facts.FellBack("big", "answered"), "Fallback to big: it gave the answer."),
    (facts.FellBack("big", "new"), "Fallback to big: new."),
    (facts.Withheld(), "The reply was not retried: too many retries were running already."),
    (
        facts.ClosedOut("failed_result", "called"),
        "Close-out check after a failed call: calls were added.",
    ),
    (
        facts.BrokeOff("look"),
        "A call of look ended early, after its beginning was streamed to the client.",
    ),
    (
        facts.LadderEnded("empty"),
        "No attempts were left: the client received the usable part of the replies.",
    ),
    (facts.WindowFilled(256), "The answer ended because the window of 256 tokens was full."),
    (
        facts.Compacted(2, 1, 0, 1, 90, 100, 128, is_new=True),
        "The conversation was shortened to fit the window (tier 2).",
    ),
    (facts.Compacted(2, 1, 0, 1, 90, 100, 128), ""),
    (facts.Asked("as_asked"), ""),
    (facts.ToolRan("search", "find", "done", 1), ""),  # the row already shows the call
)


@pytest.mark.parametrize(
    ("fact", "sentence"), SENTENCES, ids=[type(outcome).__name__ for outcome, _ in SENTENCES]
)
def test_each_fact_has_the_sentence_of_this_table_or_none(fact: Fact, sentence: str) -> None:
    words = fact.words()
    assert ("" if words is None else words.sentence) == sentence


@pytest.mark.parametrize(
    ("happened", "words"),
    [
        ((), ""),
        ((facts.Asked("as_asked"),), ""),
        ((facts.Omitted("web_search"),), ""),  # some clients always cause it
        ((facts.Rescued("hermes", "f"),), "a call rescued from text (hermes)"),
        (
            (facts.Rescued("hermes", "f"), facts.Rescued("hermes", "g"), facts.Rescued("xml", "g")),
            "3 calls rescued from text (hermes, xml)",
        ),
        ((facts.Repaired("f"),), "invalid JSON repaired"),
        ((facts.Coerced("f", "/a"), facts.Coerced("f", "/b")), "2 values converted"),
        ((facts.Renamed("getWeather", "get_weather"),), "a tool name corrected"),
        ((facts.Dropped("x"), facts.Healed("ids")), "a part removed, the history repaired"),
        ((facts.LoopNoticed("f", 3),), "f called 3 times with the same result"),
        ((facts.FailuresNoticed(3),), "3 tool rounds failed"),
        ((facts.RoundsExceeded(50),), "a text answer requested after 50 tool rounds"),
        ((facts.AnswerLimited(900),), "answer limited to 900 tokens"),
        ((facts.Withheld(),), "no retry: too many retries are running"),
        ((facts.FellBack("big", "withheld"),), "fallback to big: fallback_per_hour was reached"),
        ((facts.Resent(),), "sent to another server after a failed generation"),
        (
            (facts.ClosedOut("always", "done"),),
            "close-out check after the answer: nothing was left to do",
        ),
        ((facts.BrokeOff("f"),), "a call of f ended early"),
        ((facts.LadderEnded("prose"),), "no attempts left"),
        ((facts.WindowFilled(512),), "the window is full"),
        (
            (facts.Compacted(1, 1, 0, 1, 400, 900, 512, is_new=True),),
            "history cut from 900 to 400 tokens",
        ),
        ((facts.RejectedReply("new"),), "rejected new"),
    ],
)
def test_facts_of_one_kind_are_summarized_together_in_a_few_words(
    happened: tuple[Fact, ...], words: str
) -> None:
    assert summarize(happened) == words


@pytest.mark.parametrize("defect", Defect)
def test_every_defect_is_summarized_in_words_instead_of_by_its_name(defect: Defect) -> None:
    summary = summarize((facts.RejectedReply(defect.value),))
    assert len(summary.split()) > 2
    assert "_" not in summary


@pytest.mark.parametrize("fact", [outcome for outcome, _ in SENTENCES], ids=repr)
def test_every_fact_with_a_sentence_has_a_summary_except_omitted_and_reasoning_restored(
    fact: Fact,
) -> None:
    has_words = fact.words() is not None
    assert bool(summarize((fact,))) is (
        has_words and not isinstance(fact, (facts.Omitted, facts.ReasoningRestored))
    )


def test_the_table_of_sentences_covers_every_kind_of_fact() -> None:
    assert {type(fact) for fact, _ in SENTENCES} == set(Fact.__subclasses__())


def test_every_defect_and_every_error_and_every_kind_of_attempt_has_a_sentence() -> None:
    assert WORDS.attempts.keys() == {*get_args(AttemptKind)}
    assert WORDS.defects.keys() == {member.value for member in Defect}
    assert word_for(TemperError()) in WORDS.errors
    texts = (text for text, _ in WORDS.defects.values())
    all_texts = (*WORDS.attempts.values(), *texts, *WORDS.errors.values())
    assert all(re.fullmatch(r"[A-Z].+[.?]", text) for text in all_texts)
    assert attempt_sentence("nudged") == "Retry with a hint about the defect."
    assert attempt_sentence("new") == "Retried in another way (new)."
    assert problem_sentence("empty", None) == "The reply was empty."
    assert problem_sentence("empty", "refused") == "The backend rejected the request."
    assert problem_sentence(None, "new") == "The attempt failed."
    assert problem_sentence(None, None) == ""


def test_sentences_returns_equal_sentences_once_and_at_most_forty_in_all() -> None:
    lines = sentences((facts.Asked("raw"), facts.Repaired("a"), facts.Repaired("a")))
    assert lines == ("Invalid JSON in a call of a was repaired.",)
    assert len(sentences(facts.Repaired(str(number)) for number in range(1000))) == 40


def test_a_long_tool_name_with_control_characters_is_truncated_and_escaped() -> None:
    (line,) = sentences([facts.Renamed("\x1b[2J\u202e" + "x" * 1_000_000, "look")])
    assert line.isprintable()
    assert len(line) < 300
    assert cut("\0") == "\\x00"
