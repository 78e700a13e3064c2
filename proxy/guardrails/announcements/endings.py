"""The last sentence of a reply, made ready for a search: no markup, no quotations, no code.

It is where an announcement stands. Everything here looks at the end of the reply only.
"""

# ruff: noqa: RUF001 - marks of many scripts look alike

import re

from proxy.guardrails.announcements.cues import fold
from proxy.guardrails.announcements.matching import Sentence

_TAIL = 600  # characters
_SENTENCES, _LINES = 3, 2
_FENCE = "```"
_THOUGHTS_END = "</think>"
# Lines that are no prose of the model's own: quotations, tables, headings, items, indented code.
_NO_PROSE = re.compile(r"(?:[>|+#]|(?:[-*•]|\d+[.)])\s|\t| {4})")
# The head of a letter: what follows was written for the user to send.
_LETTER = re.compile(
    r"^\W*(?:subject|betreff|objet|asunto|oggetto|assunto|onderwerp|temat|тема|件名|主题|제목)\s?[:：]"
    r"|^(?:dear|hi|hello|hallo|liebe[rs]?|bonjour|hola|estimad[oa]|caro|cara|beste|cher)"
    r"(?: [\w.]+){1,3},$",
    re.MULTILINE | re.IGNORECASE,
)
_CODE = re.compile(r"`+[^`\n]*`+")
_LINK = re.compile(r"\[([^][\n]*)\]\([^()\s]*\)")
_QUOTATION = re.compile(
    r'"[^"\n]*"|“[^”"\n]*[”"]|„[^“”"\n]*[“”"]|«[^»\n]*»|»[^«\n]*«|「[^」\n]*」|『[^』\n]*』'
    r"|‘[^’\n]*’(?!\w)|‹[^›\n]*›|(?<!\w)'(?=\w)[^\n]*?(?<=[\w.,!?])'(?!\w)"
)
_PICTURES = re.compile(
    "[\U0001f000-\U0001faff\u2190-\u21ff\u2300-\u27bf\u2b00-\u2bff\ufe0f\u200d]+"
)
_EMPHASIS = re.compile(r"[*~]+|(?<!\w)_+|_+(?!\w)")
_SENTENCE_END = re.compile(
    r"(?<=[.!?…।؟۔])(?<!\b\w\.)(?<!\b[DMS][rst]\.)[)\]”»]*\s+|(?<=[。！？])|\n+"
)
_QUESTION_MARKS = frozenset("?？؟⸮՞፧\u037e")
_MARK = re.compile(
    r"\s*(?:([:：])(?=\s|[^\x00-\x7f]|\Z)|[,;](?=\s|\Z)|[，、،；؛]|\s[-–—]+(?=\s)|—|[()\[\]])\s*"
)
_ELISION = re.compile(r"\b([cdjlmnst]|qu)'(?=\w)")  # j'ouvre
_PADDING = " ,.!^…।۔。！"


def find_last_sentences(text: str) -> tuple[str, ...]:
    """Return up to three last sentences; none where they cannot be an announcement."""
    tail = _tail(text)
    if is_question(tail) or _LETTER.search(tail):
        return ()
    lines = [line for line in tail.splitlines() if line.strip()][-_LINES:]
    if not lines or _NO_PROSE.match(lines[-1]):
        return ()
    plain = _EMPHASIS.sub("", _LINK.sub(r"\1", _CODE.sub("`", "\n".join(lines))))
    prose = _PICTURES.sub("", _QUOTATION.sub('"', plain))
    return tuple(split_sentences(prose)[-_SENTENCES:])


def split_sentences(prose: str) -> list[str]:
    return [one for one in _SENTENCE_END.split(prose) if one.strip(' .!"')]


def is_question(text: str) -> bool:
    """Return whether no word follows the last question mark."""
    for character in reversed(text):
        if character in _QUESTION_MARKS:
            return True
        if character.isalnum():
            break
    return False


def _tail(text: str) -> str:
    """Return what is looked at: prose behind the last thought and the last block of code."""
    if text.count(_FENCE) % 2:
        return ""
    tail = text[-_TAIL:].rpartition(_THOUGHTS_END)[2]
    return tail.rpartition(_FENCE)[2].rstrip()


def normalise(sentence: str) -> Sentence:
    marked = _MARK.sub(lambda mark: " : " if mark[1] else " , ", fold(sentence))
    words = _ELISION.sub(r"\1' ", marked).strip(_PADDING).split()
    if sentence.rstrip().endswith(("...", "…")):
        words.append("…")
    return Sentence(f" {' '.join(words)} ", frozenset(words))
