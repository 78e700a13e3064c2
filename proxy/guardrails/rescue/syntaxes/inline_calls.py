"""Calls without a mark that stand on the line of a sentence, at the end of the reply.

Little tells them from an illustration. So they are read for tools that require arguments only, and
count where the sentence announces an act and the call is fit for its tool.
"""

from collections.abc import Sequence
from dataclasses import replace

from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.bare_json import UnopenedJson
from proxy.guardrails.rescue.syntaxes.gemma import BareGemma
from proxy.guardrails.rescue.syntaxes.pythonic import PythonList, read_python_calls
from proxy.guardrails.rescue.values.cursor import Cursor

_OBJECT, _LIST, _CALL = " {", " [", " call:"
_FORMS: dict[str, Syntax] = {_OBJECT: UnopenedJson(), _LIST: PythonList(), _CALL: BareGemma()}
_NAME = "@"
_SPELLINGS = {
    f'{_OBJECT}"name":"{_NAME}"': _OBJECT,
    f'{_OBJECT}"name": "{_NAME}"': _OBJECT,
    f"{_LIST}{_NAME}(": _LIST,
    f"{_CALL}{_NAME}{{": _CALL,
}


class InlineCalls:
    """` {"name": "NAME"`, ` [NAME(` or ` call:NAME{` behind a sentence or a colon."""

    name = "inline_calls"
    place = Place.ANYWHERE
    is_marked = False

    def __init__(self, names: Sequence[str]) -> None:
        self._forms = {
            spelling.replace(_NAME, name): form
            for name in names
            for spelling, form in _SPELLINGS.items()
        }
        self.openings = tuple(self._forms)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read what the form of `opening` is, of which no bracket may be missing."""
        form = self._forms[opening]
        cursor.rewind()
        cursor.advance(len(form))
        return _bare((yield from _FORMS[form].read(cursor, form)), may_be_open=form == _CALL)


class CodeWord:
    """`tool_code = NAME(...)` on a line of its own, as Gemma writes it where it forgets a fence."""

    name = "code_word"
    openings = ("\ntool_code",)
    place = Place.ANYWHERE
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read the calls behind the word, in a list or alone."""
        yield from cursor.whitespace()
        if (yield from cursor.literal("=")):
            yield from cursor.whitespace()
        return _bare((yield from read_python_calls(cursor)))


class FirstCodeWord(CodeWord):
    """The same as the first words of a reply."""

    openings = ("tool_code",)
    place = Place.REPLY_START


def _bare(found: Calls | NotACall, *, may_be_open: bool = False) -> Calls | NotACall:
    """Return calls as what counts only with further proof."""
    if isinstance(found, NotACall) or not (found.closed or may_be_open):
        return NotACall(Reason.NOT_A_CALL)
    return replace(found, is_bare=True)
