import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import Found
from proxy.guardrails.rescue.siblings import Siblings
from proxy.guardrails.rescue.syntax import Reason

OFFERED = ("look", "now")
TAG = "<tool_call>"


def found(name: str = "look", syntax: str = "hermes", *, is_marked: bool = True) -> Found:
    """Make what is found for one call."""
    return Found(syntax, (WrittenCall(name, {}),), "", is_marked, closed=True)


def test_nothing_forbids_the_first_call() -> None:
    siblings = Siblings(OFFERED)
    assert siblings.objection(found(), TAG) is None
    assert not siblings.is_settled


def test_behind_a_refused_call_no_other_counts() -> None:
    siblings = Siblings(OFFERED)
    siblings.refuse(Reason.IN_SENTENCE, found())
    assert siblings.is_settled
    assert siblings.objection(found("now"), TAG) is Reason.OUT_OF_ORDER
    assert siblings.objection(found(), TAG) is Reason.OUT_OF_ORDER


def test_a_refused_call_that_nobody_offered_means_nothing() -> None:
    siblings = Siblings(OFFERED)
    siblings.refuse(Reason.IN_SENTENCE, found("other"))
    assert siblings.objection(found(), TAG) is None


@pytest.mark.parametrize("first", [found(is_marked=False), found()])
def test_a_call_that_only_lacked_marks_may_be_repeated(first: Found) -> None:
    siblings = Siblings(OFFERED)
    siblings.refuse(Reason.NOT_CLOSED, first)
    assert siblings.objection(found("now"), TAG) is Reason.OUT_OF_ORDER
    assert siblings.objection(found(), TAG) is None
    siblings.accept(found(), TAG)
    assert siblings.objection(found("now"), TAG) is None


def test_behind_unmarked_calls_no_unmarked_one_counts() -> None:
    siblings = Siblings(OFFERED)
    siblings.refuse(None, found("other", is_marked=False))
    assert siblings.objection(found(is_marked=False), "{") is Reason.OUT_OF_ORDER
    assert siblings.objection(found(), TAG) is None


def test_behind_an_example_no_call_counts() -> None:
    for show in (Siblings.show_example, lambda one: one.refuse(Reason.QUOTED, found())):
        siblings = Siblings(OFFERED)
        show(siblings)
        assert siblings.objection(found(), TAG) is Reason.QUOTED
        siblings.refuse(Reason.IN_SENTENCE, found())
        assert siblings.objection(found(), TAG) is Reason.OUT_OF_ORDER


def test_words_separate_calls_of_different_syntaxes() -> None:
    siblings = Siblings(OFFERED)
    siblings.accept(found(), TAG)
    assert siblings.objection(found(syntax="invoke"), "<invoke name=") is None
    siblings.hear("Words.")
    assert siblings.has_spoken
    assert siblings.objection(found(syntax="invoke"), "<invoke name=") is Reason.QUOTED
    assert siblings.objection(found(syntax="qwen_coder"), TAG) is None
    assert siblings.objection(found(), "<other>") is None


def test_behind_a_broken_call_no_other_counts() -> None:
    siblings = Siblings(OFFERED)
    siblings.break_off("<tool_call>{oh", is_marked=True)
    assert siblings.objection(found(), TAG) is Reason.NESTED
    siblings.refuse(Reason.IN_SENTENCE, found())
    assert siblings.objection(found(), TAG) is Reason.NESTED


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
        assert siblings.objection(found(), TAG) is reason


def test_the_mere_name_of_a_tool_is_no_call() -> None:
    siblings = Siblings(OFFERED)
    siblings.break_off("look(up) is a function; look and see", is_marked=False)
    assert siblings.objection(found(), TAG) is None


def test_thoughts_without_calls_mean_nothing_for_what_follows_them() -> None:
    siblings = Siblings(OFFERED).end_thoughts()
    assert siblings is not None
    assert not siblings.must_end_reply


def test_behind_thoughts_with_calls_others_have_to_end_the_reply() -> None:
    siblings = Siblings(OFFERED)
    siblings.accept(found(), TAG)
    anew = siblings.end_thoughts()
    assert anew is not None
    assert anew.must_end_reply
    again = anew.end_thoughts()
    assert again is not None
    assert again.must_end_reply


def test_a_broken_call_has_to_end_before_its_thoughts_do() -> None:
    siblings = Siblings(OFFERED)
    siblings.break_off("<tool_call>{oh", is_marked=True)
    siblings.hear("}\nHm.\n</think>")
    assert siblings.end_thoughts() is None
    siblings.hear("</tool_call>\n</think>")
    anew = siblings.end_thoughts()
    assert anew is not None
    assert anew.must_end_reply
    assert anew.objection(found(), TAG) is None
