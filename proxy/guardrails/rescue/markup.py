r"""The markup that is open at a position in prose: elements, environments, comments, strings.

A call within `<pre>`, `\begin{verbatim}`, `/*`, a here-document, `{{{` or quotation marks is a
quotation. Within any other element, such as `<section>`, the model may mean the call or show it.
The names of the elements that quote are `showing` in `words.toml`.
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
_SIGNS = re.compile(r"[<\\#\[“”«»„「」『』‹›]|/\*|\"{3}|'{3}|^(?:\.\.[ ]|\{{3})", re.MULTILINE)
# Elements about calls or reasoning contain calls that are meant.
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
# The ends of blocks in reStructuredText and wikis. They have no closing mark like other markup.
_BLOCK_ENDS = {
    "directive": re.compile(r"^\S", re.MULTILINE),
    "braces": re.compile(r"^\}\}\}", re.MULTILINE),
}
# The beginnings of the closing marks of markup with a name.
_NAMED = {"element": "</", "environment": "\\end{", "block": "#+end_", "bracket": "[/"}
_ENDS = re.compile(r"</|\\end|\#\+end|\[/", re.IGNORECASE)
# LaTeX shows the argument of these; with any other command it is text.
_INLINE = re.compile(
    r"\\(?:(?:verb|lstinline)\*?\W|(?:texttt|lstinline|code|footnote|mintinline)\{"
    r"|mintinline\{\w{1,20}\}\W)\Z"
)
_MOST_OPEN = 64  # different closing marks; a hostile reply could open any number of elements
# Any other markup (`----`, `:::`, `{% raw %}`) has marks on the line before the call and right
# after it. Without any rule for markup 347 of 870 quotations become calls, and with this rule alone
# 5 (docs/ablation.md).
_SIGN = r"(?:[<>\[\]{}|\\$=_+~@%#/\"'`]|--|::|\.\.|\*/)"
_ENDS_IN_MARK = re.compile(rf"(?:\A|\n)[ \t]*{_SIGN}[^\n]*\s*\Z|{_SIGN}\s*\Z")
_BEGINS_WITH_MARK = re.compile(rf"\s*{_SIGN}")


def ends_in_mark(text: str) -> bool:
    """Return whether the last non-blank line of prose begins or ends with a mark."""
    return _ENDS_IN_MARK.search(text) is not None


def begins_with_mark(text: str) -> bool:
    return _BEGINS_WITH_MARK.match(text) is not None


class Markup:
    """Tracks the markup in prose.

    The prose arrives in pieces that end before a possible call, so no mark spans two pieces.
    """

    def __init__(self) -> None:
        self._open: dict[str, int] = {}  # the closing marks of open markup, with counts
        self._end: re.Pattern[str] | None = None  # the end of text that is not examined
        self._is_inline = False

    @property
    def is_quotation(self) -> bool:
        is_shown = any(count and not _is_layout(closer) for closer, count in self._open.items())
        return is_shown or self._end is not None or self._is_inline

    @property
    def layout(self) -> tuple[str, ...]:
        """The closing marks of the open elements in which a call may be meant or shown."""
        return tuple(closer for closer, count in self._open.items() if count and _is_layout(closer))

    def pass_text(self, text: str) -> None:
        self._is_inline = _INLINE.search(text[-40:]) is not None
        index = self._pass_end(text, 0)
        if index == 0 and _SIGNS.search(text) is None:
            return
        while index >= 0 and (match := _MARKUP.search(text, index)):
            self._meet(match)
            index = self._pass_end(text, match.end())

    def _pass_end(self, text: str, index: int) -> int:
        """Return the index after the awaited end, or -1 if the text does not contain it."""
        if self._end is None:
            return index
        match = self._end.search(text, index)
        if match is None:
            return -1
        self._end = None
        return match.end()

    def _meet(self, match: re.Match[str]) -> None:
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
            # German closes a quotation with the mark that opens one in English: „so“
            is_end = quote not in _CLOSING or (quote == "“" and bool(self._open.get("”")))
            self._turn(closer, is_end=is_end)
        else:
            self._meet_named(match[0], mark)

    def _meet_named(self, text: str, mark: Mapping[str, str | None]) -> None:
        """Note the beginning or the end of markup that has a name."""
        is_end = _ENDS.match(text) is not None
        for kind, closer in _NAMED.items():
            name = mark[kind] or ""
            is_skipped = kind == "element" and (_ABOUT_CALLS.search(name) or text.endswith("/>"))
            if name and not is_skipped:
                self._turn(closer + name.casefold(), is_end=is_end)

    def _turn(self, closer: str, *, is_end: bool) -> None:
        count = self._open.get(closer, 0)
        if len(self._open) < _MOST_OPEN or closer in self._open:
            self._open[closer] = max(count - 1, 0) if is_end else count + 1


def _is_layout(closer: str) -> bool:
    return closer[:2] == "</" and closer[2:] not in words_around_calls().showing
