"""Lexical search in a few thousand short texts, such as tools or passages, with the BM25 formula.

    rank("weather in Paris", [("get_weather", "Current weather of a city."), ("send_mail", "")])
    -> [0]

Names such as `getWeather` and `get_weather` are two words. Words of names have more weight than
words of descriptions. Scripts without spaces are compared by single characters.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice

_SATURATION, _LENGTH_SHARE = 1.2, 0.6  # k1 and b of BM25
_NAME_WEIGHT = 3  # a word in a name has the weight of this many words in a description
# getHTTPCode2 -> get, HTTP, Code, 2; each letter outside ASCII is a word
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_a-zA-Z]")
_SHORTEST_STEM = 3
# English endings, the longer ending of two similar endings first
_ENDINGS = ("ations", "ation", "ings", "ing", "ers", "er", "ies", "ed", "es", "e", "y", "s")
# words that occur in most texts, and so do not distinguish them
_COMMON = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "for", "from", "how", "i", "in",
    "is", "it", "me", "my", "of", "on", "or", "that", "the", "this", "to", "what", "which", "with",
    "you", "your",
))  # fmt: skip


def rank(query: str, texts: Sequence[tuple[str, str]], least: float = 0.0) -> list[int]:
    """Return the indexes of the (name, description) pairs that share a word with the query.

    The best match is the first. Matches below the share `least` of the best score are omitted.
    """
    scores = _score(query, texts)
    limit = least * max(scores.values(), default=0.0)
    best = [index for index, score in scores.items() if score >= limit]
    return sorted(best, key=lambda index: (-scores[index], index))


def frequent_words(texts: Sequence[str], count: int) -> list[str]:
    """Return at most `count` words, the most frequent first, without numbers and short words."""
    words = Counter(word for text in texts for word in dict.fromkeys(_words(text)))
    long = (word for word, _ in words.most_common() if len(word) > _SHORTEST_STEM)
    return [*islice(filter(str.isalpha, long), count)]


def _score(query: str, texts: Sequence[tuple[str, str]]) -> dict[int, float]:
    documents = [Counter(_terms(name) * _NAME_WEIGHT + _terms(text)) for name, text in texts]
    lengths = [sum(document.values()) for document in documents]
    mean = sum(lengths) / max(1, len(lengths)) or 1.0
    frequency = Counter(term for document in documents for term in document)
    scores: dict[int, float] = {}
    for term in dict.fromkeys(_terms(query)):
        rarity = math.log(1 + (len(texts) - frequency[term] + 0.5) / (frequency[term] + 0.5))
        for index, document in enumerate(documents):
            if count := document[term]:
                relative = 1 - _LENGTH_SHARE + _LENGTH_SHARE * lengths[index] / mean
                gain = count * (_SATURATION + 1) / (count + _SATURATION * relative)
                scores[index] = scores.get(index, 0.0) + rarity * gain
    return scores


def _terms(text: str) -> list[str]:
    return [_stem(word) for word in _words(text)]


def _words(text: str) -> list[str]:
    words = (word.lower() for word in _WORD.findall(text))
    return [word for word in words if word not in _COMMON]


def _stem(word: str) -> str:
    """Remove a common English ending, so that `reserve` and `reservation` are the same term."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            return word.removesuffix(ending)
    return word
