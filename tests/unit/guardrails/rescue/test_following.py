import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import Found
from proxy.guardrails.rescue.following import SIGHT, Ahead, Sequel
from proxy.guardrails.rescue.modes import Beginning

SOURCE = '<tool_call>{"name": "look"}</tool_call>'
TOKEN = '<|tool_call|>{"name": "look"}'
START = Beginning("<tool_call>")
WITHIN = Beginning("<tool_call>", begins_reply=False, is_sentence_start=False, is_apart=True)


def call(source: str = SOURCE, **arguments: str) -> Found:
    """Make what is found for one call."""
    return Found("x", (WrittenCall("look", dict(arguments)),), source, is_marked=True, closed=True)


def sequel(text: str, source: str = SOURCE, begun: Beginning = START) -> Sequel | None:
    """Tell how a line goes on."""
    return Ahead(text, is_all=True).sequel_to(call(source), begun)


def test_a_new_sentence_stands_apart() -> None:
    assert sequel("Then more.") is Sequel.APART
    assert sequel("Then more.", begun=WITHIN) is Sequel.WORDS


def test_lower_words_behind_the_beginning_of_a_sentence_do_not_tell() -> None:
    assert sequel("and more") is Sequel.OPEN
    assert sequel("and more", begun=WITHIN) is Sequel.WORDS


@pytest.mark.parametrize("source", [TOKEN, SOURCE.replace("{", "\n{")])
def test_tokens_and_calls_of_several_lines_are_no_words_of_a_sentence(source: str) -> None:
    assert sequel("because of it", source) is Sequel.APART
    assert sequel("because of it", source, WITHIN) is Sequel.WORDS
    assert sequel("Then more", source, WITHIN) is Sequel.APART


@pytest.mark.parametrize(
    "text", ["is it", "means this", "would do", "gets it", '" he said', "` and"]
)
def test_a_call_that_is_mentioned_is_never_apart(text: str) -> None:
    assert sequel(text, TOKEN) is Sequel.WORDS


@pytest.mark.parametrize("text", ["wo", "a", "and more"])
def test_more_text_is_waited_for_where_it_can_tell(text: str) -> None:
    assert Ahead(text, is_all=False).sequel_to(call(), START) is None
    assert Ahead(f"{text}\n", is_all=False).sequel_to(call(), START) is Sequel.OPEN


def test_no_more_is_waited_for_than_can_tell() -> None:
    assert Ahead("w" * 30, is_all=False).sequel_to(call(TOKEN), START) is Sequel.APART
    assert Ahead("x " * (SIGHT // 2), is_all=True).sequel_to(call(), START) is Sequel.OPEN


@pytest.mark.parametrize("text", ["and more", "123", "{x}", "this too", "- done", "\U0001f44d"])
def test_a_call_with_arguments_may_begin_a_reply_of_other_words(text: str) -> None:
    ahead = Ahead(text, is_all=True)
    assert ahead.may_stand_apart(call(at="x"), START)
    assert not ahead.may_stand_apart(call(at="x"), WITHIN)


@pytest.mark.parametrize(
    "text", ["is it", "for it", "or", ", too", ".", "gives it", ") and", "vs. y"]
)
def test_a_call_that_the_words_go_on_with_may_not(text: str) -> None:
    assert not Ahead(text, is_all=True).may_stand_apart(call(at="x"), START)


def test_a_mere_tag_may_not() -> None:
    ahead = Ahead("and more", is_all=True)
    bare = "<function=look></function>"
    assert not ahead.may_stand_apart(call(bare), START)
    assert ahead.may_stand_apart(call(f"<tool_call>{bare}</tool_call>"), START)
    assert ahead.may_stand_apart(call(), START)


@pytest.mark.parametrize(
    ("text", "joint"),
    [(", x", ", "), ("and x", "and "), (", and then x", ", and then "), ("or x", ""), ("andy", "")],
)
def test_commas_and_conjunctions_join(text: str, joint: str) -> None:
    assert Ahead(text, is_all=True).joint == joint


def test_a_line_ends_at_its_end() -> None:
    assert Ahead("a b\nc", is_all=True).line == "a b"
    assert Ahead(",\nc\nd", is_all=True).line == ",\nc"
