"""Comments between the parts of a value, in the ways of JavaScript and of Python."""

import re

from proxy.conversation.possessive import possessive
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.literals import Literals

COMMENTS_BEGIN = frozenset("/#")
_COMMENTS = Literals(("//", "/*", "#"))
_WHOLE_COMMENTS = re.compile(
    possessive(r"(?:(?:(?://|#)[^\n]*+\n|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/)[ \t\r\n]*+)++")
)
_LINE_END = Literals(("\n",))
_COMMENT_ENDS = {"//": _LINE_END, "#": _LINE_END, "/*": Literals(("*/",))}


def pass_comments(cursor: Cursor) -> Waiting[bool]:
    """Pass comments that come next and the white space behind them; tell whether there were any."""
    if cursor.pass_run(_WHOLE_COMMENTS):
        yield from cursor.whitespace()
        return True
    mark = yield from cursor.one_of(_COMMENTS)
    if not mark:
        return False
    yield from cursor.take_until(_COMMENT_ENDS[mark])
    yield from cursor.one_of(_COMMENT_ENDS[mark])
    yield from cursor.whitespace()
    return True
