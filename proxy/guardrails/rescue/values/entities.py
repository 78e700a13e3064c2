"""Values in tags that a model escaped as XML demands, although no tag grammar here does."""

import re
from html import unescape

_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|#39|#34|#x27|#x22);")
_UNESCAPED = re.compile(r"[<>]|&(?!(?:lt|gt|amp|quot|apos|#39|#34|#x27|#x22);)")
_QUOTES = {'"': ("&quot;", "&#34;", "&#x22;"), "'": ("&apos;", "&#39;", "&#x27;")}


def unescaped(text: str) -> str:
    """Return what was meant, if everything that XML has to escape was escaped, else `text`.

    A value that holds both `&lt;` and `<` is markup or code, where entities stand for themselves.
    """
    if not _ENTITY.search(text) or _UNESCAPED.search(text):
        return text
    for quote, entities in _QUOTES.items():
        if quote in text and any(entity in text for entity in entities):
            return text
    return unescape(text)
