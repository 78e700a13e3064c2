"""Distinguishes an announcement from an answer.

In an announcement, the model writes that it is about to act, and stops without a call:

    I'll check the weather.                               announcement
    Let me look: The file has two lines.                  answer: the result
    I'll check the weather if you tell me the city.       answer: the user is asked
    Would you like me to check the weather?               answer: an offer

In doubt the reply is an answer. A missed announcement changes nothing, but an answer that is
mistaken for an announcement costs a generation and may cause an unwanted call. Of 128 announcements
in docs/ablation.md, 95 are recognized.
"""

# ruff: noqa: RUF001 - marks and letters of many scripts look alike

import re
from collections.abc import Mapping, Sequence
from functools import cache

from proxy.guardrails.announcements.cues import Script, fold, load_languages
from proxy.guardrails.announcements.matching import Matcher, Sentence

# The part of a reply that is examined: the last `_TAIL` characters, and of these only the last
# lines and sentences.
_TAIL = 600
_SENTENCES, _LINES = 3, 2
_FENCE = "```"
# Lines that are not prose of the model: quotations, tables, headings, list items, indented code.
_NO_PROSE = re.compile(r"(?:[>|+#]|(?:[-*•]|\d+[.)])\s|\t| {4})")
# The head of a letter or mail. The text after the head is a draft for the user, so "I will check
# the dates" in this text announces no tool call.
_LETTER_HEAD = re.compile(
    r"^\W*(?:subject|betreff|objet|asunto|oggetto|assunto|onderwerp|temat|тема|件名|主题|제목)\s?[:：]"
    r"|^(?:dear|hi|hello|hallo|liebe[rs]?|bonjour|hola|estimad[oa]|caro|cara|beste|cher)"
    r"(?: [\w.]+){1,3},$",
    re.MULTILINE | re.IGNORECASE,
)
_CODE = re.compile(r"`+[^`\n]*`+")
_LINK = re.compile(r"\[([^][\n]*)\]\([^()\s]*\)")  # only its text is prose
_QUOTATION = re.compile(
    r'"[^"\n]*"|“[^”"\n]*[”"]|„[^“”"\n]*[“”"]|«[^»\n]*»|»[^«\n]*«|「[^」\n]*」|『[^』\n]*』'
    r"|‘[^’\n]*’(?!\w)|‹[^›\n]*›|(?<!\w)'(?=\w)[^\n]*?(?<=[\w.,!?])'(?!\w)"
)
# Emoji, arrows and symbols, and the invisible characters that join or color emoji.
_PICTURES = re.compile(
    "[\U0001f000-\U0001faff\u2190-\u21ff\u2300-\u27bf\u2b00-\u2bff\ufe0f\u200d]+"
)
# An underscore between letters belongs to a name, not to emphasis.
_EMPHASIS = re.compile(r"[*~]+|(?<!\w)_+|_+(?!\w)")
# A period after a single letter or a title (`Dr.`, `Ms.`) does not end a sentence.
_SENTENCE_END = re.compile(
    r"(?<=[.!?…।؟۔])(?<!\b\w\.)(?<!\b[DMS][rst]\.)[)\]”»]*\s+|(?<=[。！？])|\n+"
)
# Besides `?`, the question marks of fullwidth text, Arabic, Armenian, Ethiopic and Greek.
_QUESTION_MARKS = frozenset("?？؟⸮՞፧\u037e")
# Punctuation between clauses. The colon in `10:30` and the comma in `1,000` do not match.
_MARK = re.compile(
    r"\s*(?:([:：])(?=\s|[^\x00-\x7f]|\Z)|[,;](?=\s|\Z)|[，、،；؛]|\s[-–—]+(?=\s)|—|[()\[\]])\s*"
)
_ELISION = re.compile(r"\b([cdjlmnst]|qu)'(?=\w)")  # j'ouvre
_PADDING = " ,.!^…।۔。！"


def find_last_sentences(text: str) -> tuple[str, ...]:
    """Return at most the last three sentences; () if they cannot be an announcement."""
    tail = _tail(text)
    if is_question(tail) or _LETTER_HEAD.search(tail):
        return ()
    lines = [line for line in tail.splitlines() if line.strip()][-_LINES:]
    if not lines or _NO_PROSE.match(lines[-1]):
        return ()
    plain = _EMPHASIS.sub("", _LINK.sub(r"\1", _CODE.sub("`", "\n".join(lines))))
    prose = _PICTURES.sub("", _QUOTATION.sub('"', plain))
    return tuple(split_sentences(prose)[-_SENTENCES:])


def split_sentences(prose: str) -> list[str]:
    return [item for item in _SENTENCE_END.split(prose) if item.strip(' .!"')]


def is_question(text: str) -> bool:
    for character in reversed(text):
        if character in _QUESTION_MARKS:
            return True
        if character.isalnum():
            break
    return False


def _tail(text: str) -> str:
    """Return the part to examine: the prose after the last block of code."""
    if text.count(_FENCE) % 2:
        return ""
    return text[-_TAIL:].rpartition(_FENCE)[2].rstrip()


def normalize(sentence: str) -> Sentence:
    marked = _MARK.sub(lambda mark: " : " if mark[1] else " , ", fold(sentence))
    words = _ELISION.sub(r"\1' ", marked).strip(_PADDING).split()
    if sentence.rstrip().endswith(("...", "…")):
        words.append("…")
    return Sentence(f" {' '.join(words)} ", frozenset(words))


_WORD = re.compile(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]*")
_MOST_TOOLS = 100
_MOST_SENTENCES = 3
# "Let me check the format:" has a cue of an example ("format"), but announces an act.
_ACTS = re.compile(
    r"\W*(?:let me|let's|i'll|i will|i)\s(?:now\s|first\s)?"
    r"(?:look|check|read|open|see|find|fetch|get|search|try|call|run)\b",
    re.IGNORECASE,
)
_ENDS = frozenset(".!?…।؟۔。！？")
_LETTERS: dict[Script, str] = {
    "latin": "a-zà-ɏḀ-ỿ",
    "cyrillic": "Ѐ-ӿ",
    "arabic": "\u0600-\u06ff",
    "devanagari": "\u0900-\u097f",
    "hangul": "가-힣",
    "kana": "ぁ-ヿ",
    "han": "一-鿿",
}
_LETTER = {script: re.compile(f"[{letters}]") for script, letters in _LETTERS.items()}


def announces(text: str, tools: Sequence[str] = ()) -> bool:
    """Return whether prose announces an act; False in doubt.

    The words in the names of the offered `tools` also name acts: "let me grep".
    """
    sentences = find_last_sentences(text)
    if not sentences:
        return False
    *before, last = sentences
    sentence = normalize(last)
    matchers = matchers_for(sentence.text)
    if before and any(matcher.is_afterthought(sentence) for matcher in matchers):
        *before, last = before
        sentence = normalize(last)
    names = [name[:64] for name in tools[:_MOST_TOOLS]]
    tool_words = frozenset(word.lower() for name in names for word in _WORD.findall(name))
    results = {matcher.find(sentence, tool_words) for matcher in matchers}
    if "announced" not in results or "barred" in results:
        return False
    # If an earlier sentence asks the user for something, the act depends on the user's answer.
    return not any(
        is_question(earlier) or any(matcher.is_request(normalize(earlier)) for matcher in matchers)
        for earlier in before
    )


_INSTRUCTS = re.compile(
    r"\s*(?:To\s(?:[^.\n]|\.(?=\w)){3,160},\s(?:you|we)|You|We)\s"
    r"(?:first\s)?(?:can|could|should|must|(?:will\s|would\s)?(?:need|have)\sto)\s"
    r"(?:first\s|now\s|then\s)?(?P<verb>[a-z]+)\b[^.\n]{0,160}"
)
_HOW_TO = re.compile(
    r"\?|\b(?:how|what|why|where|which|explain|describe|help|guide|instructions?|steps?)\b"
    r"|\b(?:tell me|show)\b",
    re.IGNORECASE,
)
# Verbs of acts that only the user can do: "To continue, you need to confirm your address."
_USER_VERBS = frozenset(
    (
        *("provide", "give", "tell", "confirm", "specify", "enter", "share", "sign", "log", "say"),
        *("contact", "pay", "choose", "decide", "wait", "ask", "be", "have", "see", "find"),
        *("expect", "open", "visit"),
    )
)


def instructs_user(text: str, request: str, tools: Sequence[str]) -> bool:
    """Return whether a reply begins with instructions for the user in place of the requested work.

    Qwen2.5-Coder 1.5B explained its next step to the user in 5 of 24 tasks: "To order it, you need
    to first check the stock." If the request asks for an explanation, such a reply is the answer.
    """
    match = _INSTRUCTS.match(text)
    if match is None or _HOW_TO.search(request):
        return False
    is_named = any(name in match[0] for name in tools)
    is_purpose = match[0].lstrip().startswith("To ")
    return is_named or (is_purpose and match["verb"] not in _USER_VERBS)


def instructs(text: str) -> bool:
    """Return whether a reply begins with instructions for the user."""
    return _INSTRUCTS.match(text) is not None


def shows_next(words: str) -> bool:
    """Return whether the words before a call present it as an example and announce no act."""
    if not (sentences := split_sentences(words)):
        return False
    is_open = sentences[-1].rstrip("*_ ")[-1:] not in _ENDS
    is_shown = _shows(sentences[-1], may_report=is_open)
    return is_shown and not (announces(words) or _ACTS.match(sentences[-1]))


def shows_last(words: str) -> bool:
    """Return whether the first sentences after a call present it as an example."""
    sentences = split_sentences(words)[:_MOST_SENTENCES]
    return any(_shows(item, may_report=True) for item in sentences)


def asks_user(text: str) -> bool:
    """Return whether the end of a text asks the user for something, and announces no act."""
    last = split_sentences(text[-_TAIL:])[-_MOST_SENTENCES:]
    sentences = map(normalize, last)
    is_request = any(
        matcher.is_request(sentence)
        for sentence in sentences
        for matcher in matchers_for(sentence.text)
    )
    return is_request and not announces(last[-1])


def _shows(text: str, *, may_report: bool) -> bool:
    sentence = normalize(text)
    matchers = matchers_for(sentence.text)
    return any(matcher.shows(sentence, may_report=may_report) for matcher in matchers)


def matchers_for(sentence: str) -> tuple[Matcher, ...]:
    """Return the matchers of all languages that are written in the script of a sentence."""
    if sentence.isascii():
        return _matchers()["latin"]
    scripts = [script for script, letter in _LETTER.items() if letter.search(sentence)]
    # Japanese mixes kana and han, so a sentence with both scripts is not Chinese.
    if "kana" in scripts and "han" in scripts:
        scripts.remove("han")
    return tuple(matcher for script in scripts for matcher in _matchers()[script])


def prepare() -> None:
    """Read and compile all languages, which takes about 0.3 s; call it in a thread after the start.

    When the languages were compiled at their first use, the first replies of a server took 51 ms
    longer.
    """
    for matchers in _matchers().values():
        for matcher in matchers:
            matcher.prepare()


@cache
def _matchers() -> Mapping[Script, tuple[Matcher, ...]]:
    matchers = [Matcher(cues) for cues in load_languages()]
    return {
        script: tuple(matcher for matcher in matchers if matcher.script == script)
        for script in _LETTER
    }
