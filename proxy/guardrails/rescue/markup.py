r"""Tracks the open markup in prose: elements, environments, comments, strings.

A call within `<pre>`, `\begin{verbatim}`, `/*`, a here-document, `{{{` or quotation marks is a
quotation. Within another element, such as `<section>`, the model may mean the call or show it. The
list `showing` in `words.toml` contains the names of the elements whose content is a quotation.
"""

# ruff: noqa: RUF001 - quotation marks look alike

import re
from collections.abc import Mapping

from proxy.guardrails.rescue.examples import words_around_calls

_MARKUP = re.compile(
    r"""`[^`\n]*`
    |</?(?P<element>[A-Za-z][\w.-]*)(?:\s[^<>]*)?/?>
    |\\(?:begin|end)\{(?P<environment>\w+\*?)\}
    |\#\+(?:begin|end)_(?P<block>\w+)
    |\[/?(?P<bracket>quote|code|pre|spoiler|example|noparse|nowiki|verbatim
      |listing|literal|source|verse)\b[^\]\n]*\]
    |<<[-~]?[ ]?(?P<mark>["']?)(?P<heredoc>[A-Za-z_]\w*)(?P=mark)(?=[\s|>;)&]|\Z)
    |(?P<verbatim><!--|/\*|<!\[CDATA\[|\"{3}|'{3})
    |(?P<directive>^\.\.[ ][\w-]+::)|(?P<braces>^\{\{\{[ \t]*$)
    |(?P<opened>[“«„「『‹])|(?P<closed>[”»」』›])""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_ANY_MARK = re.compile(r"[<\\#\[“”«»„「」『』‹›]|/\*|\"{3}|'{3}|^(?:\.\.[ ]|\{{3})", re.MULTILINE)
# In an element with one of these names, the model means the call, so the element does not count as
# layout.
_ABOUT_CALLS = re.compile(
    r"tool|func|call|invo|action|think|thought|reason|param|arg", re.IGNORECASE
)
_CLOSING = {
    "“": "”",
    "«": "»",
    "„": "”",
    "「": "」",
    "『": "』",
    "‹": "›",
    "<!--": "-->",
    "/*": "*/",
    "<![cdata[": "]]>",
}
# The ends of blocks in reStructuredText (the next line without an indent) and in wikis.
_BLOCK_ENDS = {
    "directive": re.compile(r"^\S", re.MULTILINE),
    "braces": re.compile(r"^\}\}\}", re.MULTILINE),
}
# The prefix of the closing mark of each kind of markup that has a name.
_NAMED = {"element": "</", "environment": "\\end{", "block": "#+end_", "bracket": "[/"}
_ENDS = re.compile(r"</|\\end|\#\+end|\[/", re.IGNORECASE)
# These LaTeX commands quote their argument; the argument of other commands is text.
_INLINE = re.compile(
    r"\\(?:(?:verb|lstinline)\*?\W|(?:texttt|lstinline|code|footnote|mintinline)\{"
    r"|mintinline\{\w{1,20}\}\W)\Z"
)
_MOST_OPEN = 64  # tracked closing marks; a hostile reply could open any number of elements
# Other markup (`----`, `:::`, `{% raw %}`) has marks on the line before the call and directly after
# the call. Of 870 quotations, 347 become calls without any rule for markup; with this rule as the
# only rule, 5 become calls (docs/ablation.md).
_MARK_CHARACTER = r"(?:[<>\[\]{}|\\$=_+~@%#/\"'`]|--|::|\.\.|\*/)"
_ENDS_IN_MARK = re.compile(rf"(?:\A|\n)[ \t]*{_MARK_CHARACTER}[^\n]*\s*\Z|{_MARK_CHARACTER}\s*\Z")
_BEGINS_WITH_MARK = re.compile(rf"\s*{_MARK_CHARACTER}")


def ends_in_mark(text: str) -> bool:
    """Return whether the last non-blank line of prose begins or ends with a mark."""
    return _ENDS_IN_MARK.search(text) is not None


def begins_with_mark(text: str) -> bool:
    return _BEGINS_WITH_MARK.match(text) is not None


class Markup:
    """Tracks the open markup.

    The prose arrives in pieces that end before a possible call, so no mark is split.
    """

    def __init__(self) -> None:
        self._open: dict[str, int] = {}  # closing mark of open markup -> number of open marks
        self._end: re.Pattern[str] | None = None  # pattern for the end of the skipped text
        self._is_inline = False

    @property
    def is_quotation(self) -> bool:
        is_shown = any(count and not _is_layout(closer) for closer, count in self._open.items())
        return is_shown or self._end is not None or self._is_inline

    @property
    def layout(self) -> tuple[str, ...]:
        """The closing marks of the open elements in which a call may be meant or only shown."""
        return tuple(closer for closer, count in self._open.items() if count and _is_layout(closer))

    def feed(self, text: str) -> None:
        self._is_inline = _INLINE.search(text[-40:]) is not None
        index = self._skip_to_end(text, 0)
        if index == 0 and _ANY_MARK.search(text) is None:
            return
        while index >= 0 and (match := _MARKUP.search(text, index)):
            self._track(match)
            index = self._skip_to_end(text, match.end())

    def _skip_to_end(self, text: str, index: int) -> int:
        """Return the index after the end of skipped text; -1 if the end has not arrived."""
        if self._end is None:
            return index
        match = self._end.search(text, index)
        if match is None:
            return -1
        self._end = None
        return match.end()

    def _track(self, match: re.Match[str]) -> None:
        mark = match.groupdict()
        if word := mark["heredoc"]:
            self._end = re.compile(rf"^[ \t]*{re.escape(word)}\b", re.MULTILINE)
        elif verbatim := mark["verbatim"]:
            opener = verbatim.casefold()
            self._end = re.compile(re.escape(_CLOSING.get(opener, opener)))
        elif match.lastgroup in _BLOCK_ENDS:
            self._end = _BLOCK_ENDS[match.lastgroup]
        elif quote := mark["opened"] or mark["closed"]:
            closer = _CLOSING.get(quote, quote)
            # The mark “ closes a quotation in German („so“), and opens a quotation in English.
            is_end = quote not in _CLOSING or (quote == "“" and bool(self._open.get("”")))
            self._count(closer, is_end=is_end)
        else:
            self._track_named(match[0], mark)

    def _track_named(self, text: str, mark: Mapping[str, str | None]) -> None:
        """Track an opening or closing mark with a name, such as `<pre>` or `[/code]`."""
        is_end = _ENDS.match(text) is not None
        for kind, closer in _NAMED.items():
            name = mark[kind] or ""
            is_skipped = kind == "element" and (_ABOUT_CALLS.search(name) or text.endswith("/>"))
            if name and not is_skipped:
                self._count(closer + name.casefold(), is_end=is_end)

    def _count(self, closer: str, *, is_end: bool) -> None:
        count = self._open.get(closer, 0)
        if len(self._open) < _MOST_OPEN or closer in self._open:
            self._open[closer] = max(count - 1, 0) if is_end else count + 1


def _is_layout(closer: str) -> bool:
    return closer[:2] == "</" and closer[2:] not in words_around_calls().showing
