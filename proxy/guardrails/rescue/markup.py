"""The markup that is open at a place in prose: elements, environments, documents, strings."""

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
    |(?P<string>\"{3}|'{3}|@["'](?=\n|\Z)|(?:(?<=[=(])|(?<=[=(][ ]))`(?=\n|\Z))
    |(?P<comment><!--|/\*|<!\[CDATA\[|\{\#[ \n])
    |(?P<directive>^\.\.[ ][\w-]+::)|(?P<braces>^\{\{\{[ \t]*$)
    |(?P<pod>^=(?:begin|pod|head\d|over)\b)
    |(?P<armor>^-{3,}[ ]?begin[ ](?!.*(?:tool|func|call|action))[\w ]+-{3,}[ \t]*$)
    |(?P<template>\{%-?[ ]*(?:raw|verbatim|comment|highlight|codeblock)\b)
    |(?P<lines>^(?:\$\$(?=[ \t]*$)|:::(?!.*(?:tool|func|call|action))
      |\{(?:noformat|code|quote)(?=[:}])))
    |(?P<opened>[“«„「『‹])|(?P<closed>[”»」』›])
    |^(?P<rule>[-=._*+])(?P=rule){3,}[ \t]*$""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_SIGNS = re.compile(
    r"[<\\#\[“”«»„「」『』‹›]|\"{3}|'{3}|/\*|@[\"']$|`$|\{[%#{]|^(?:[-=._*+]{3}|[=:$.{])",
    re.MULTILINE,
)
# Elements about calls or thoughts contain calls that are meant.
_OWN = re.compile(r"tool|func|call|invo|action|think|thought|reason|param|arg", re.IGNORECASE)
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
    "{#": "#}",
    "@'": "\n'@",
    '@"': '\n"@',
}
# What ends other text that is not examined, by the group of what begins it.
_VERBATIM = {
    "directive": re.compile(r"^\S", re.MULTILINE),
    "braces": re.compile(r"^\}\}\}", re.MULTILINE),
    "pod": re.compile(r"^=(?:end|cut)\b", re.MULTILINE),
    "armor": re.compile(r"^-{3,}[ ]?end\b", re.MULTILINE | re.IGNORECASE),
    "template": re.compile(r"\{%-?[ ]*end", re.IGNORECASE),
}
# The closing marks of what has a name.
_NAMED = {"element": "</", "environment": "\\end{", "block": "#+end_", "bracket": "[/"}
_ENDS = re.compile(r"</|\\end|\#\+end|\[/", re.IGNORECASE)
_MOST_OPEN = 64  # different ones
_INLINE = re.compile(
    r"\\(?:(?:verb|lstinline)\*?\W|(?:texttt|lstinline|code|footnote|mintinline)\{"
    r"|mintinline\{\w{1,20}\}\W)\Z"
)


class Markup:
    """Follows prose in pieces that end before a possible call, so nothing in them is torn."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}  # marks that would close what is open, with counts
        self._end: re.Pattern[str] | None = None  # what ends text that is not examined
        self._is_inline = False

    @property
    def is_quotation(self) -> bool:
        is_shown = any(count and not _is_layout(one) for one, count in self._open.items())
        return is_shown or self._end is not None or self._is_inline

    @property
    def layout(self) -> tuple[str, ...]:
        """The marks that would close elements in which a call may be meant or shown."""
        return tuple(one for one, count in self._open.items() if count and _is_layout(one))

    def pass_text(self, text: str) -> None:
        self._is_inline = _INLINE.search(text[-40:]) is not None
        place = self._pass_end(text, 0)
        if place == 0 and _SIGNS.search(text) is None:
            return
        while place >= 0 and (found := _MARKUP.search(text, place)):
            self._meet(found)
            place = self._pass_end(text, found.end())

    def _pass_end(self, text: str, place: int) -> int:
        """Return where to continue: after the awaited end, or -1 if it is not there."""
        if self._end is None:
            return place
        found = self._end.search(text, place)
        if found is None:
            return -1
        self._end = None
        return found.end()

    def _meet(self, found: re.Match[str]) -> None:
        mark = found.groupdict()
        if word := mark["heredoc"]:
            self._end = re.compile(rf"^[ \t]*{re.escape(word)}\b", re.MULTILINE)
        elif verbatim := mark["string"] or mark["comment"]:
            opener = verbatim.strip().casefold()
            self._end = re.compile(re.escape(_CLOSING.get(opener, opener)))
        elif found.lastgroup in _VERBATIM:
            self._end = _VERBATIM[found.lastgroup]
        elif quote := mark["opened"] or mark["closed"]:
            closer = _CLOSING.get(quote, quote)
            is_end = quote not in _CLOSING or (quote == "“" and bool(self._open.get("”")))
            self._turn(closer, is_end=is_end)
        elif rule := mark["lines"] or (mark["rule"] or "") * 4:
            closer = f"\n{rule.casefold()}"
            self._turn(closer, is_end=bool(self._open.get(closer)))
        else:
            self._meet_named(found[0], mark)

    def _meet_named(self, text: str, mark: Mapping[str, str | None]) -> None:
        """Note the beginning or the end of markup that has a name."""
        is_end = _ENDS.match(text) is not None
        for kind, closer in _NAMED.items():
            name = mark[kind] or ""
            is_own = kind == "element" and (_OWN.search(name) or text.endswith("/>"))
            if name and not is_own:
                self._turn(closer + name.casefold(), is_end=is_end)

    def _turn(self, closer: str, *, is_end: bool) -> None:
        count = self._open.get(closer, 0)
        if len(self._open) < _MOST_OPEN or closer in self._open:
            self._open[closer] = max(count - 1, 0) if is_end else count + 1


def _is_layout(closer: str) -> bool:
    return closer[0] == "\n" or (
        closer[:2] == "</" and closer[2:] not in words_around_calls().showing
    )
