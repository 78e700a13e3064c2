"""Classifies words: words of the marks of calls (`words.toml`), and placeholders for values."""

import re
from importlib.resources import files

import msgspec

from proxy.conversation.possessive import possessive


class _Words(msgspec.Struct, frozen=True):
    """The content of `words.toml`; the comments in the file describe the lists."""

    of_calls: frozenset[str]
    first: frozenset[str]
    of_arguments: frozenset[str]
    of_values: frozenset[str]
    others: frozenset[str]


_FILE = files("proxy.guardrails.unparsed_calls") / "words.toml"
_KNOWN = msgspec.toml.decode(_FILE.read_bytes(), type=_Words)
_WORDS = _KNOWN.of_calls | _KNOWN.of_arguments | _KNOWN.of_values | _KNOWN.others
_LITERALS = frozenset(("true", "false", "null", "none"))
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_PARTS = re.compile(possessive(r"[A-Za-z]+(?:[_:./|-]+[A-Za-z]+)*+[_:./|-]*"))
_BEGINNING = re.compile(r"[A-Za-z_:./-]*")
# A text with one of these beginnings is an instruction to the user, or the definition of a
# function.
_IMPERATIVE = re.compile(r"(?:Call|Use|Invoke|Execute|Function|function)\s+\w")
_LONGEST_PLACEHOLDER = 40
_PLACEHOLDER = re.compile(
    r"""<.*>|\{.*\}|\[[\w ]*\]|\$\{?\w+\}?|%\w+%|.*(?:\.\.\.|…).*|\?+|x{3,}
    |(?:your|enter|insert)[ _-].*|(?:some|the|a|an)[_-].*
    |(?:str|string|int|integer|num|number|float|bool|boolean|object|array|list|dict|any|optional)
     (?:[^\w\s].*|\s*[=|].*)?""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


def is_marker(mark: str) -> bool:
    """Return whether a word consists only of words of marks, like `tool_call`."""
    return _PARTS.fullmatch(mark) is not None and _WORDS.issuperset(_parts(mark))


def is_first_marker(mark: str) -> bool:
    """Return whether a word is a marker that may begin a reply without brackets before it."""
    return is_marker(mark) and _parts(mark)[0] in _KNOWN.first


def may_become_marker(mark: str, *, is_first: bool) -> bool:
    """Return whether a word may become a marker if more letters follow.

    `is_first`: the word is the first word of the reply.
    """
    parts = _parts(mark)
    if _BEGINNING.fullmatch(mark) is None or not parts:
        return not mark
    *before, last = parts
    known = _KNOWN.first if is_first and not before else _WORDS
    return _WORDS.issuperset(before) and any(word.startswith(last) for word in known)


def is_about_calls(mark: str, *, is_tag: bool = False) -> bool:
    """Return whether a mark has a word about calls or, in a tag, a word about arguments."""
    parts = _parts(mark)
    return not _KNOWN.of_calls.isdisjoint(parts) or (
        is_tag and not _KNOWN.of_arguments.isdisjoint(parts)
    )


def names_key(mark: str) -> bool:
    """Return whether an attribute names a key, as `name` does in `<parameter name="city">`."""
    parts = _parts(mark)
    return not (_KNOWN.of_arguments | {"name", "key"}).isdisjoint(parts)


def introduces_value(mark: str) -> bool:
    """Return whether a value follows this mark, as after `<arg_value>`."""
    return not _KNOWN.of_values.isdisjoint(_parts(mark))


def is_literal(mark: str) -> bool:
    """Return whether a bare word is a number or a constant such as `true` or `None`."""
    return mark[0].isdigit() or mark.casefold() in _LITERALS


def is_placeholder(value: str) -> bool:
    """Return whether a value is only a placeholder, such as `<city>` or the type `string`."""
    mark = value.strip()
    is_short = len(mark) <= _LONGEST_PLACEHOLDER
    return is_short and _PLACEHOLDER.fullmatch(mark) is not None


def is_imperative(text: str) -> bool:
    """Return whether a text begins with an instruction, such as "Use the tool"."""
    return _IMPERATIVE.match(text) is not None


def _parts(mark: str) -> list[str]:
    return [part.casefold() for part in _PART.findall(mark)]
