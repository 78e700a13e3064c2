import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import FoundCalls
from proxy.guardrails.rescue.position import Position, is_apart
from proxy.guardrails.rescue.siblings import Siblings
from proxy.guardrails.rescue.syntax import Reason

OFFERED = ("look", "now")
TAG = "<tool_call>"


def found(name: str = "look", syntax: str = "hermes", *, is_marked: bool = True) -> FoundCalls:
    """Make what is found for one call."""
    return FoundCalls(syntax, (WrittenCall(name, {}),), "", is_marked, closed=True)


def test_nothing_forbids_the_first_call() -> None:
    siblings = Siblings(OFFERED)
    assert siblings.object_to(found(), TAG) is None
    assert not siblings.is_settled


def test_behind_a_refused_call_no_other_counts() -> None:
    siblings = Siblings(OFFERED)
    siblings.refuse(Reason.IN_SENTENCE, found())
    assert siblings.is_settled
    assert siblings.object_to(found("now"), TAG) is Reason.OUT_OF_ORDER
    assert siblings.object_to(found(), TAG) is Reason.OUT_OF_ORDER


def test_a_refused_call_that_nobody_offered_means_nothing() -> None:
    siblings = Siblings(OFFERED)
    siblings.refuse(Reason.IN_SENTENCE, found("other"))
    assert siblings.object_to(found(), TAG) is None


@pytest.mark.parametrize("first", [found(is_marked=False), found()])
def test_a_call_that_only_lacked_marks_may_be_repeated(first: FoundCalls) -> None:
    siblings = Siblings(OFFERED)
    siblings.refuse(Reason.NOT_CLOSED, first)
    assert siblings.object_to(found("now"), TAG) is Reason.OUT_OF_ORDER
    assert siblings.object_to(found(), TAG) is None
    siblings.accept(found(), TAG)
    assert siblings.object_to(found("now"), TAG) is None


def test_behind_unmarked_calls_no_unmarked_one_counts() -> None:
    siblings = Siblings(OFFERED)
    siblings.refuse(None, found("other", is_marked=False))
    assert siblings.object_to(found(is_marked=False), "{") is Reason.OUT_OF_ORDER
    assert siblings.object_to(found(), TAG) is None


def test_behind_an_example_no_call_counts() -> None:
    for show in (Siblings.show_example, lambda one: one.refuse(Reason.QUOTED, found())):
        siblings = Siblings(OFFERED)
        show(siblings)
        assert siblings.object_to(found(), TAG) is Reason.QUOTED
        siblings.refuse(Reason.IN_SENTENCE, found())
        assert siblings.object_to(found(), TAG) is Reason.OUT_OF_ORDER


def test_words_separate_calls_of_different_syntaxes() -> None:
    siblings = Siblings(OFFERED)
    siblings.accept(found(), TAG)
    assert siblings.object_to(found(syntax="invoke"), "<invoke name=") is None
    siblings.add_words("Words.")
    assert siblings.has_spoken
    assert siblings.object_to(found(syntax="invoke"), "<invoke name=") is Reason.QUOTED
    assert siblings.object_to(found(syntax="qwen_coder"), TAG) is None
    assert siblings.object_to(found(), "<other>") is None


def test_behind_a_broken_call_no_other_counts() -> None:
    siblings = Siblings(OFFERED)
    siblings.break_off("<tool_call>{oh", is_marked=True)
    assert siblings.object_to(found(), TAG) is Reason.NESTED
    siblings.refuse(Reason.IN_SENTENCE, found())
    assert siblings.object_to(found(), TAG) is Reason.NESTED


@pytest.mark.parametrize(
    "source",
    [
        '```json\n{"name": "look", "a',
        "call:look{at",
        "[look(at='",
        "look {",
        ">>>look\n{",
        "Action: look\nAction Input: {",
        "<look at='x",
        "<function=look>",
    ],
)
def test_an_unmarked_call_that_breaks_is_one_if_it_calls_an_offered_tool(source: str) -> None:
    for names, reason in ((OFFERED, Reason.NESTED), (("see",), None), ((), None)):
        siblings = Siblings(names)
        siblings.break_off(source, is_marked=False)
        assert siblings.object_to(found(), TAG) is reason


def test_the_mere_name_of_a_tool_is_no_call() -> None:
    siblings = Siblings(OFFERED)
    siblings.break_off("look(up) is a function; look and see", is_marked=False)
    assert siblings.object_to(found(), TAG) is None


def test_thoughts_without_calls_mean_nothing_for_what_follows_them() -> None:
    siblings = Siblings(OFFERED).end_reasoning()
    assert siblings is not None
    assert not siblings.must_end_reply


def test_behind_thoughts_with_calls_others_have_to_end_the_reply() -> None:
    siblings = Siblings(OFFERED)
    siblings.accept(found(), TAG)
    anew = siblings.end_reasoning()
    assert anew is not None
    assert anew.must_end_reply
    again = anew.end_reasoning()
    assert again is not None
    assert again.must_end_reply


def test_a_broken_call_has_to_end_before_its_thoughts_do() -> None:
    siblings = Siblings(OFFERED)
    siblings.break_off("<tool_call>{oh", is_marked=True)
    siblings.add_words("}\nHm.\n</think>")
    assert siblings.end_reasoning() is None
    siblings.add_words("</tool_call>\n</think>")
    anew = siblings.end_reasoning()
    assert anew is not None
    assert anew.must_end_reply
    assert anew.object_to(found(), TAG) is None


SOURCE = '<tool_call>{"name": "look"}</tool_call>'
TOKEN = '<|tool_call|>{"name": "look"}'
START = Position("<tool_call>")
WITHIN = Position("<tool_call>", begins_reply=False, is_sentence_start=False, is_apart=True)


def call(source: str = SOURCE, **arguments: str) -> FoundCalls:
    """Make what is found for one call."""
    return FoundCalls(
        "x", (WrittenCall("look", dict(arguments)),), source, is_marked=True, closed=True
    )


def judge(
    text: str, source: str = SOURCE, beginning: Position = START, *, is_all: bool = True
) -> bool | None:
    """Tell whether a call is apart from the text behind it."""
    return is_apart(text, source, beginning, is_all=is_all)


def test_a_new_sentence_is_apart() -> None:
    assert judge("Then more.") is True
    assert judge("Then more.", beginning=WITHIN) is False


@pytest.mark.parametrize("text", ["and more", ", too", ".", "{x}", "123"])
def test_a_sentence_may_go_on_with_other_text(text: str) -> None:
    assert judge(text) is False


@pytest.mark.parametrize("source", [TOKEN, SOURCE.replace("{", "\n{")])
def test_tokens_and_calls_of_several_lines_are_no_words_of_a_sentence(source: str) -> None:
    assert judge("because of it", source) is True
    assert judge("because of it", source, WITHIN) is False
    assert judge("Then more", source, WITHIN) is True


@pytest.mark.parametrize("text", ["is it.", "means this!\nMore", '" he said', "` and"])
def test_a_call_of_which_a_sentence_tells_is_never_apart(text: str) -> None:
    assert judge(text, TOKEN) is False


@pytest.mark.parametrize("text", ["wo", "a", "and more."])
def test_more_text_is_waited_for_where_it_can_tell(text: str) -> None:
    assert judge(text, TOKEN, is_all=False) is None
    assert judge("And", TOKEN, is_all=False) is True
    assert judge(text, is_all=False) is False
