from collections.abc import Iterable

import pytest

from proxy.guardrails.rescue.findings import DroppedText, Finding, Prose, RefusedText
from proxy.guardrails.rescue.formats import TABLE
from proxy.guardrails.rescue.marks import CALL_TOKENS, HALF_OPENINGS
from proxy.guardrails.rescue.stray import StrayMarks, remove_lone_marks
from proxy.guardrails.rescue.syntax import Reason
from tests.fakes.arrivals import chunkings, joined

STRAY, BROKEN = DroppedText("stray_mark"), RefusedText(Reason.BROKEN)


def filter_prose(pieces: Iterable[str], *, prompt: str = "") -> list[Finding]:
    marks = StrayMarks(lambda mark: mark in prompt)
    findings = [finding for piece in pieces for finding in marks.filter([Prose(piece)])]
    return joined(findings + marks.filter([], is_last=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sure.</tool_call>", [Prose("Sure."), STRAY]),
        ("Sure.\n</function>\n</tool_call>\n", [Prose("Sure.\n"), STRAY, Prose("\n"), STRAY]),
        ("<tool_call>\n\nIt is.", [STRAY, Prose("\nIt is.")]),
        ("It is.\n<tool_call>", [Prose("It is.\n"), STRAY]),
        ('A "}}\n</tool_call> b', [Prose('A "}}\n</tool_call> b')]),
        ('A "}}\n</tool_call>', [Prose('A "}}'), BROKEN, Prose("\n</tool_call>")]),
        (
            'A\n<parameter name="b">c</parameter>',
            [Prose("A"), BROKEN, Prose('\n<parameter name="b">c</parameter>')],
        ),
        ("Sure.\n</parameter>\n</function>", [Prose("Sure.\n"), STRAY, Prose("\n"), STRAY]),
        ("A\n<arg_key>b</arg_key>", [Prose("A"), BROKEN, Prose("\n<arg_key>b</arg_key>")]),
        ("It is noon. </tool_call>", [Prose("It is noon. "), STRAY]),
        ("</tool_call>It is noon.", [STRAY, Prose("It is noon.")]),
        ("<|python_tag|>It is noon.\nBye.", [STRAY, Prose("It is noon.\nBye.")]),
        ("Sure.\n<function=", [Prose("Sure."), BROKEN, Prose("\n<function=")]),
    ],
)
def test_a_call_mark_without_a_call_is_removed_from_the_text(
    text: str, expected: list[Finding]
) -> None:
    for pieces in chunkings(text):
        findings = filter_prose(pieces)
        assert findings[: len(expected)] == expected
        assert [finding for finding in findings[len(expected) :] if finding != Prose("\n")] == []


@pytest.mark.parametrize("text", ["Sure.%s", "Sure.\n%s", "%s\nSure.", "Sure. %s", "Sure.\n%s%s\n"])
def test_stray_marks_of_all_formats_are_removed(text: str) -> None:
    for mark in (*CALL_TOKENS, *TABLE.turn_ends, "<|im_start|>"):
        reply = text.replace("%s", mark)
        for pieces in ([reply], [*reply]):
            findings = filter_prose(pieces)
            words = "".join(finding.text for finding in findings if isinstance(finding, Prose))
            assert (STRAY in findings, words.strip()) == (True, "Sure."), mark


@pytest.mark.parametrize(
    "text", ["Write %s and go on.", "`%s`", "It begins with %s", "The form:\n%s\nand so on"]
)
def test_a_sentence_about_any_call_mark_is_unchanged(text: str) -> None:
    for mark in (*CALL_TOKENS, *HALF_OPENINGS, *TABLE.turn_ends):
        reply = text.replace("%s", mark)
        for pieces in ([reply], [*reply]):
            assert filter_prose(pieces) == [Prose(reply)]


@pytest.mark.parametrize(
    "text",
    [
        "It ends with </tool_call>",
        "<s>old</s>",
        "<tool_call>get_weather of today",
        "`</tool_call>` ends it.",
        "`<tool_call>`\n`</tool_call>`",
        "Close it with </tool_call> and go on.",
        "The form:\n<tool_call>\nand so on",
        "```\n<tool_call>\n</tool_call>\n```",
        "<tool_call>\n<b>c</b>",
        "<tool_call>x</tool_call>",
        "a < b </b>",
        "The patch:\n\n+<|from|>assistant\n+<|recipient|>get_weather\n-nothing\n",
        "He wrote\n\n> <tool_call>\n> and stopped.",
    ],
)
def test_a_call_mark_that_the_text_explains_is_kept(text: str) -> None:
    for pieces in chunkings(text):
        assert filter_prose(pieces) == [Prose(text)]


def test_a_call_mark_that_also_occurs_in_the_prompt_is_kept() -> None:
    assert filter_prose(["Sure.</tool_call>"], prompt="Write </tool_call>") == [
        Prose("Sure.</tool_call>")
    ]


@pytest.mark.parametrize(
    ("text", "is_dropped"),
    [
        ("<tool_call>", True),
        ("\n<minimax:tool_call>\n", True),
        ("<|im_end|>", True),
        ("</arg_value></tool_call>", True),
        ("[TOOL_CALLS]", True),
        ("<|new_mark|>", True),
        ("<b>", False),
        ("x<tool_call>", False),
        ("", False),
    ],
)
def test_text_that_consists_only_of_marks_is_removed_after_structured_calls(
    text: str, is_dropped: bool
) -> None:
    findings: list[Finding] = [RefusedText(Reason.NOT_CLOSED), Prose(text)]
    assert remove_lone_marks(findings, lambda _: False) == ([STRAY] if is_dropped else findings)
    assert remove_lone_marks(findings, lambda _: True) == findings


def test_closing_marks_after_a_refused_call_are_kept() -> None:
    marks = StrayMarks(lambda _: False)
    findings: list[Finding] = [RefusedText(Reason.BROKEN), Prose("a\n</tool_call>")]
    assert marks.filter(findings, is_last=True) == findings
