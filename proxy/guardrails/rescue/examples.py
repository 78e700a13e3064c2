"""Words with which a reply introduces a call as an example, and does not make it."""

# ruff: noqa: RUF001 - Chinese sentences end in fullwidth marks

import re
from functools import cache

# As much of the prose as it takes to see an announcement.
SIGHT = 120
_FLAGS = re.IGNORECASE | re.VERBOSE
_COLON = r"[*_)\]]*\s*[:：]?[*_]*"
_END = r"\s*(?:```\w*\s*)?\Z"
_KINDS = r"(?:tool|function|api|call|xml|json|basic|general|typical|correct|expected|sample)"
_ABOUT = r"""(?:\s+(?:of|for|how|a|an|the|such|this|that|tool|function|call|usage|use|reply|output
    |request|invocation|response|message|in|code|one|is|are|would|be|looks?|like|to|it))*"""
_SHOWN = r"(?:example|sample|illustration|demonstration|demo|template)"
_ANNOUNCEMENTS = (
    # for example, e.g., such as, looks like
    r"""(?:\b(?:for|as|by\s+way\s+of)\s(?:an?\s)?(?:example|instance|illustration|reference)
        |\be\.\s?g\.|\be\.g|\bsuch\sas|\blooks?\slike|\bas\s+in)(?:\s(?:this|so))?\s*[:：,，]?""",
    # an example of a tool call
    rf"""\b(?:an?|one|another|this|following|simple|minimal|typical|here's|here\s+is)
        (?:\s+(?!{_SHOWN})\w+)??\s+{_SHOWN}\b{_ABOUT}{_COLON}""",
    # Example, Usage, Syntax at the beginning of a sentence or a line
    rf"""(?:\A|\n|[.!?…。！？>)\]])[\W\d]*+(?:{_KINDS}\s+)?{_SHOWN}{_ABOUT}{_COLON}""",
    rf"""(?:\A|\n|[.!?…。！？>)\]])[\W\d]*+(?:{_KINDS}\s+){{0,2}}
        (?:usage|syntax|format|notation|pattern|snippet|excerpt|quotation|quote)
        {_ABOUT}[*_)\]]*\s*[:：][*_]*""",
    r"""(?:\A|\n|[.!?…。！？>)\]])[\W\d]*+(?:example|illustration)(?:\s+[\w'-]+){0,6}\s*[:：]""",
    rf"""(?:\A|\n)[ \t]*\#{{1,6}}[ \t]*(?:{_KINDS}\s+){{0,2}}
        (?:usage|syntax|format|notation|examples?)\b[^\w\n]*\n""",
    # the format is as follows
    r"""\b(?:format|syntax|notation|pattern|template|convention|grammar)
        \s(?:is|looks|reads|goes|would\sbe|should\sbe|must\sbe)
        (?:\s(?:as\sfollows|like\sthis|like|this|simply))?\s*[:：]?""",
    r"""\b(?:tool[\s-]call|call|correct|expected|following|required|xml|json)
        \s(?:format|syntax|notation)\s*[:：]""",
    # you would write, the call would be
    r"""\b(?:you|one|people|models|they|users?)\s+(?:can\s|could\s|would\s|should\s|may\s|might\s|must\s
        |need\sto\s|have\sto\s|want\sto\s|has\sto\s)?(?:then\s|just\s|simply\s|also\s)?
        (?:write|writes|send|sends|emit|emits|type|types|wrote|sent|typed|produce)
        (?:\s\w+){0,3}\s*[:：,]?""",
    r"""\b(?:would|could|should|might)\s+(?:then\s|just\s|simply\s|also\s|have\s)?
        (?:be|been|look|read|write|written|emit|output|say|become|sound)
        (?:\s\w+){0,3}\s*[:：,]?""",
    # the log says, the model wrote
    r"""\b(?:says?|said|reads?|shows?|showed|contains?|contained|prints?|printed|logged|wrote
        |writes|replied|answered|emitted|generated|produced|quoted|received|returned|typed|sent)
        (?:\s(?:this|that|the\sfollowing|you|me|us|back))?\s*[:：]""",
    # not, instead of
    r"""(?:\bnot|n't|n’t|\bnever|\bwithout|\bavoid)[ \t]+(?:(?:to|just|simply)[ \t]+){0,2}
        (?:call|run|use|write|send|make|execute|invoke|emit|output|issue|do|say|call|running
        |calling|using|writing|sending|making)(?:[ \t]+(?:a|an|the|this|that|it|as|with))?
        [ \t]*[:：,]?""",
    r"\b(?:instead|rather)[ \t]+(?:of|than)(?:[ \t]+\w+ing)?[ \t]*[:：]?",
    # the same in other languages
    r"""(?<!\w)(?:zum\sBeispiel|Beispiel|z\.\s?B\.|etwa\sso|por\sejemplo|ejemplo|par\sexemple
        |exemple|p\.\s?ex\.|per\sesempio|esempio|por\sexemplo|exemplo|bijvoorbeeld|voorbeeld
        |na\sprzykład|przykład|np\.|например|пример|örneğin|örnek|ví\sdụ|contoh|misalnya
        |مثال|مثلا|उदाहरण)(?:\s(?:so|wie\sfolgt|dies|ceci|así|esto|così|assim|tak|так))?
        \s*[:：,，]?""",
    r"(?:例如|比如|譬如|示例|例えば|たとえば|예를\s?들어|예시)[:：,，、]?",
    r"(?:(?<!\w)예|例)\s*[:：]",
)
# One of these stands in every announcement, and in few other words that come before a call.
_HINTS = (
    *("exampl", "instanc", "illustrat", "by way of", "as reference", "for reference", "e.g"),
    *("e. g", "such as", "ook like", "ooks like", "as in", "sample", "demo", "template", "usage"),
    *("syntax", "format", "notation", "pattern", "snippet", "excerpt", "quot", "convention"),
    *("grammar", "write", "writ", "send", "emit", "type", "wrote", "sent", "produce", "would"),
    *("could", "should", "might", "say", "said", "read", "show", "contain", "print", "logged"),
    *("repli", "answer", "generat", "receiv", "return", "not", "n't", "n\u2019t", "never", "avoid"),
    *("without", "instead", "rather", "like", "follow", "thus", "beispiel", "z.", "etwa"),
    *("ejemplo", "exempl", "ex.", "esempio", "bijvoorbeeld", "voorbeeld", "przykład", "np."),
    *("например", "пример", "örn", "ví dụ", "contoh", "misalnya", "مثال", "مثلا", "उदाहरण"),
    *("例", "比如", "譬如", "たとえば", "예"),
)
_LIKE_THIS = re.compile(rf"\b(?:like\s(?:this|so)|as\sfollows|thus)\s*[:：,]?{_END}", _FLAGS)
_OWN = re.compile(r"\b(?:I|we|me|us|let's|let’s)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?…。！？]\s|\n")
# Whoever reports what others write or what might be written, makes no plain JSON of it a call.
_ACCOUNT = re.compile(
    r"""\b(?:you|user|would|could|might|returned|received|got|sent|wrote|written|said|says
    |contains?|shows?|logs?|observation|response|payload|body)\b""",
    _FLAGS,
)
# With these words a call is handed over.
_PRESENTED = re.compile(
    r"\bhere(?:['’]s|\s+is)\s+the\s+(?:tool|function)[\s-]call\s*[:.]\s*\Z", _FLAGS
)


@cache
def _announcements() -> list[re.Pattern[str]]:
    """Compile the patterns, which takes longer than many a start may."""
    return [re.compile(pattern + _END, _FLAGS) for pattern in _ANNOUNCEMENTS]


def introduces_example(words: str) -> bool:
    """Return whether what follows `words` is shown as an example, or as the words of others."""
    small = words.casefold()
    if not any(hint in small for hint in _HINTS):
        return False
    if any(pattern.search(words) for pattern in _announcements()):
        return True
    return _LIKE_THIS.search(words) is not None and not _OWN.search(_last_sentence(words))


def gives_account(words: str) -> bool:
    """Return whether the last sentence of `words` is about what somebody else writes or wrote."""
    is_any = _ACCOUNT.search(words) is not None
    return is_any and _ACCOUNT.search(_last_sentence(words)) is not None


def presents(words: str) -> bool:
    """Return whether `words` say of what follows that it is the call."""
    return _PRESENTED.search(words) is not None


def _last_sentence(words: str) -> str:
    text = words.rstrip()
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    return words[ends[-1] :] if ends else words
