"""Removes call marks such as `</tool_call>` from prose if the reply has no call around them.

    Sure.</tool_call>
    <tool_call>
    The store first, then the file.

A mark is stray in three positions: alone on its line, at the start of a line directly before a
word, and at the end of a line directly after a word or a sentence. A mark in any other position,
such as within a sentence, is kept as text. Marks are also kept in code, in quotation marks, and
after words that introduce an example. Marks that the prompt contains are kept, and so are closing
marks whose opening mark is in the prose before them.
"""

# ruff: noqa: RUF001 - the control tokens of DeepSeek have a fullwidth bar

import re
from collections.abc import Callable, Iterable, Sequence

from proxy.conversation.possessive import possessive
from proxy.guardrails.rescue.examples import introduces_example
from proxy.guardrails.rescue.findings import DroppedText, Finding, FoundCalls, Prose, RefusedText
from proxy.guardrails.rescue.formats import TABLE
from proxy.guardrails.rescue.marks import (
    CALL_TOKENS,
    HALF_OPENINGS,
    SPECIAL_TOKENS,
    STRAY_CLOSERS,
    TAGS,
    THOUGHT_ENDS,
    contains_call,
)
from proxy.guardrails.rescue.rows import FENCE
from proxy.guardrails.rescue.syntax import Reason
from proxy.guardrails.rescue.values.cursor import Literals

_CLOSERS = STRAY_CLOSERS - THOUGHT_ENDS
# Some marks that end a turn are closing tags, such as `</s>`. The opening tag `<s>` is also HTML,
# so it is kept.
_AMBIGUOUS = {end.replace("</", "<", 1) for end in TABLE.turn_ends}
_OPENINGS = (CALL_TOKENS | SPECIAL_TOKENS) - STRAY_CLOSERS - TABLE.turn_ends - _AMBIGUOUS
# DeepSeek's marks of an argument, outside a call (cline/cline#13348). The text after these marks is
# part of a call.
_LEAKS = TABLE.leaks
_MARKS = Literals((*_OPENINGS, *_CLOSERS, *TABLE.turn_ends, *HALF_OPENINGS, *_LEAKS))
_LINE_END = re.compile(r"[ \t]*(?:\n|\Z)")
_FENCED_LINE = re.compile(rf"^[ \t]*(?:{FENCE}|~~~)", re.MULTILINE)
_MARKUP = ("<", "{", "[")
_LINE_PREFIXES = " \t+->|#*"  # characters at the start of lines in diffs, quotes and lists
_SENTENCE_ENDS = tuple(".!?…。！？।؟")
# The maximum length of a searched text. The text before a mark is searched for words that introduce
# an example. The line after a mark is searched for another mark.
_LEAD = 400
_MOST_MARKS = 50  # marks of a reply that are examined; each check reads all earlier prose
_STRAY = DroppedText("stray_mark")
_TAGS = "|".join(sorted(map(re.escape, TAGS), key=len, reverse=True))
_BRACKETED = {
    mark for row in TABLE.formats for mark in row.marks if (mark[0], mark[-1]) == ("[", "]")
}
_LONE_MARKS = map(re.escape, SPECIAL_TOKENS | STRAY_CLOSERS | CALL_TOKENS | _BRACKETED)
_TOKENS = "|".join(sorted(_LONE_MARKS, key=len, reverse=True))
_ONLY_MARKS = re.compile(
    possessive(
        rf"\s*+(?:(?:{_TOKENS}|</?(?:\w+[:|])?(?:{_TAGS})>"
        r"|</?[|｜][^\s<>|｜]+[|｜]>)\s*+)++"
    )
)


def remove_lone_marks(
    findings: Sequence[Finding], is_in_prompt: Callable[[str], bool]
) -> list[Finding]:
    """Drop the last findings of a reply if their text consists of marks only.

    An engine that has parsed the calls may leave an opening mark or a control token in the text:
    `I look.<tool_call>`.
    """
    text = "".join(finding.text for finding in findings if isinstance(finding, Prose))
    is_other = any(not isinstance(finding, Prose | RefusedText) for finding in findings)
    if is_other or _ONLY_MARKS.fullmatch(text) is None or is_in_prompt(text.strip()):
        return [*findings]
    return [_STRAY]


class StrayMarks:
    """Filters the findings of a reply in order; `is_in_prompt` searches the prompt for a mark.

    `has_leak` becomes true when the prose contains a fragment of a call, for example only its end.
    """

    def __init__(self, is_in_prompt: Callable[[str], bool]) -> None:
        self._is_in_prompt = is_in_prompt
        self._prose: list[str] = []
        self._held = ""
        self._remaining_marks = _MOST_MARKS
        self._is_refused = False
        self.has_leak = False

    def filter(self, findings: Iterable[Finding], *, is_last: bool = False) -> list[Finding]:
        kept: list[Finding] = []
        for finding in findings:
            if not isinstance(finding, Prose):
                kept += self._read("", is_last=True)
                # Once a text was refused, all later marks are kept: the reply may be about calls,
                # or the marks may be part of a broken call.
                self._is_refused |= isinstance(finding, RefusedText) and (
                    finding.reason is not Reason.NOT_A_CALL
                )
                self._prose += (finding.source,) if isinstance(finding, FoundCalls) else ()
                kept.append(finding)
            elif self._is_refused:
                kept += self._keep(finding.text)
            else:
                kept += self._read(finding.text, is_last=False)
        return kept + (self._read("", is_last=True) if is_last else [])

    def _keep(self, text: str) -> list[Finding]:
        self._prose += (text,) if text else ()
        return [Prose(text)] if text else []

    def _read(self, text: str, *, is_last: bool) -> list[Finding]:
        text, self._held = self._held + text, ""
        kept: list[Finding] = []
        while text:
            index = (
                _MARKS.find(text, 0, is_finished=is_last) if self._remaining_marks else len(text)
            )
            words = text[:index] if is_last and index == len(text) else text[:index].rstrip()
            kept += self._keep(words)
            space, text = text[len(words) : index], text[index:]
            mark = _MARKS.at(text, 0, is_finished=is_last) if text else ""
            after = text[len(mark or "") :]
            blank = " \t\n" if mark in _OPENINGS else " \t"
            is_mark_next = (
                _MARKS.at(after.lstrip(), 0, is_finished=is_last) if after.strip() else ""
            )
            is_open = mark is None or is_mark_next is None or not after.strip(blank)
            is_open = is_open or (mark in _OPENINGS and _may_enclose(after))
            if is_open and not is_last:
                self._held = space + text
                return kept
            spaces = self._keep(space)
            if not mark:
                kept += spaces + self._keep(text[:1])
                text = text[1:]
                continue
            self._remaining_marks -= 1
            if self._is_text(mark, after):
                kept += spaces + self._keep(mark)
            elif mark in _LEAKS or mark in HALF_OPENINGS or self._ends_call(mark):
                self.has_leak = self._is_refused = True
                kept += (RefusedText(Reason.BROKEN), Prose(space + text))
                return kept
            else:
                kept += (*spaces, _STRAY)
                after = after.lstrip(" \t").removeprefix("\n") if mark in _OPENINGS else after
            text = after
        return kept

    def _ends_call(self, mark: str) -> bool:
        """Return whether a closing mark follows the last brackets of a call.

        The engine or the model lost the beginning of the call: `"city": "Paris"}}</tool_call>`. If
        only the mark were removed, the end of the call would be shown as the answer, so the reply
        is rejected.
        """
        prose = "".join(self._prose).rstrip()
        return mark in _CLOSERS and prose.endswith(("}}", '"}', "]}"))

    def _is_text(self, mark: str, after: str) -> bool:
        """Return whether a mark is kept as text."""
        prose = "".join(self._prose)
        line = prose[prose.rfind("\n") + 1 :]
        if self._is_discussed(mark, prose, line):
            return True
        is_alone = not line.strip()
        if mark in _LEAKS:
            return not is_alone
        ends_line = _LINE_END.match(after) is not None
        is_mark_next = bool(_MARKS.at(after.lstrip(), 0, is_finished=True))
        if mark in HALF_OPENINGS and after.strip():
            return True
        if not (ends_line or is_mark_next):  # `</tool_call>It is noon.`
            is_word_next = after[0].isalpha() and not (mark in _OPENINGS and after[0].islower())
            return not (is_alone and is_word_next) or _encloses(mark, after)
        is_only_marks = _ONLY_MARKS.fullmatch(after.lstrip().partition("\n")[0]) is not None
        if mark in _OPENINGS and after.lstrip()[:1] in _MARKUP and not is_only_marks:
            return True  # before markup, the mark is part of a call in an unknown syntax
        has_words = bool(line.strip(_LINE_PREFIXES))
        follows_word = has_words and not line[-1].isspace() and line[-1] not in "\"'`"
        follows_sentence = line.rstrip().endswith(_SENTENCE_ENDS)
        opening = mark.replace("/", "", 1).removesuffix(">")
        is_closed = mark not in _OPENINGS and opening != mark[:-1] and opening in prose
        return is_closed or not (is_alone or follows_word or follows_sentence)

    def _is_discussed(self, mark: str, prose: str, line: str) -> bool:
        """Return whether the prompt contains a mark, or earlier text shows that it is quoted."""
        lead = prose[-_LEAD:].rstrip()
        if (
            self._is_in_prompt(mark)
            or contains_call(prose)
            or line.count("`") % 2
            or lead.endswith(":")
        ):
            return True
        return len(_FENCED_LINE.findall(prose)) % 2 == 1 or introduces_example(lead)


def _encloses(mark: str, after: str) -> bool:
    """Return whether an opening mark and another mark on the line enclose words."""
    line = after[:_LEAD].partition("\n")[0]
    return mark in _OPENINGS and _MARKS.find(line, 0, is_finished=True) < len(line)


def _may_enclose(after: str) -> bool:
    """Return whether the decision about the mark before this text needs the complete line."""
    is_next = after[:1].isalpha() or after[:1] in _MARKUP
    return is_next and "\n" not in after and len(after) < _LEAD
