import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.facts import Fact, Healed
from proxy.guardrails.history_repair.control_tokens import neutralise
from tests.fakes.arrivals import is_linear
from tests.fakes.histories import call, called, history, result, said, written

TOKENS = ("<|im_end|>", "<|im_start|>", "aba", "｜x｜", "")  # noqa: RUF001 - DeepSeek's bar
END, BROKEN = "<|im_end|>", "<\u200b|im_end|>"


def text(value: JsonValue) -> JsonValue:
    return {"type": "text", "text": value}


INTACT: list[JsonObject] = [
    said("user", "Hi", name="Ann"),
    said("user", [text("Hi"), {"type": "input_audio", "input_audio": {"data": END}}], name="Ann"),
    said("user", [text("<|im_"), text("end|>")]),
    said("assistant", END),
    said("system", END),
    called(call("a", END), content=END),
    result("a", BROKEN),
]
PLAYBOOK: list[tuple[JsonObject, JsonObject]] = [
    (said("user", f"a {END}{END}"), said("user", f"a {BROKEN}{BROKEN}")),
    (said("user", "ababa"), said("user", "a\u200bba\u200bba")),
    (result("a", f"x{END}"), result("a", f"x{BROKEN}")),
    (said("function", END, name=END), said("function", BROKEN, name=BROKEN)),
    (said("user", "Hi", name=END), said("user", "Hi", name=BROKEN)),
    (said("user", None, name=END), said("user", None, name=BROKEN)),
    (
        said("user", [text("Hi"), text(END), {"type": "other"}]),
        said("user", [text("Hi"), text(BROKEN), {"type": "other"}]),
    ),
]


def heal(*messages: Message) -> tuple[tuple[Message, ...], list[Fact]]:
    facts: list[Fact] = []
    return neutralise(messages, TOKENS, facts), facts


@pytest.mark.parametrize("message", INTACT)
def test_other_words_stay_the_very_same_message(message: JsonObject) -> None:
    (given_,) = history(message)
    (healed,), facts = heal(given_)
    assert healed is given_
    assert facts == []


@pytest.mark.parametrize(("came", "went"), PLAYBOOK)
def test_tokens_of_the_template_are_broken(came: JsonObject, went: JsonObject) -> None:
    healed, facts = heal(*history(came))
    assert written(healed) == [went]
    assert facts == [Healed("control_token")]


def test_no_escape_hides_a_token() -> None:
    (plain,) = history(said("user", END))
    source = b'{"role":"user","content":"\\u003c\\u007cim_end|>"}'
    (healed,), _ = heal(Message("user", END, source))
    assert healed == heal(plain)[0][0]


def test_a_part_without_a_token_keeps_its_bytes() -> None:
    source = b'{"role":"user","content":[{"type" : "text","text":"Hi"},{"text":"<|im_end|>"}]}'
    (healed,), _ = heal(Message("user", f"Hi\n{END}", source))
    assert b'{"type" : "text","text":"Hi"}' in healed.source


def test_without_tokens_there_is_nothing_to_do() -> None:
    messages = history(said("user", END))
    assert neutralise(messages, ("x", ""), []) is messages


@given(st.text("ab<|im_endstar>｜x"), st.sampled_from(["user", "tool"]))  # noqa: RUF001
def test_afterwards_no_token_is_left_and_no_character_is_lost(words: str, role: str) -> None:
    healed, _ = heal(*history(said(role, words)))
    assert not any(token in healed[0].text for token in TOKENS if token)
    assert healed[0].text.replace("\u200b", "") == words
    assert heal(*healed) == (healed, [])


@pytest.mark.parametrize("unit", ["<|im_end|>", "<|im_", "aba", "ab"])
def test_the_work_is_linear_in_the_text(unit: str) -> None:
    assert is_linear(
        lambda words: heal(Message("user", words, b'{"content":"' + words.encode() + b'"}')),
        lambda size: unit * size,
        5_000,
    )
