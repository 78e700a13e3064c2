"""Reads `formats.toml`, the table of all marks that structure a reply. The file documents its rows.

The table contains all marks, with three exceptions. The labels of ReAct are in `marks` and
`guardrails.labels`. The words that remain when Harmony's marks lose their tokens are in
`guardrails.reasoning`. The substitutes for quotation marks are in `values`. Each reader in
the package `syntaxes` reads the formats of some rows of the table.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.resources import files
from itertools import chain
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

# The position in a reply at which an opening is recognized.
Anchor: TypeAlias = Literal["anywhere", "line_start", "reply_start"]


class Element(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The marks of a call in tags.

    - `name`: the name of the tool, if the mark `call` contains it completely
    - `parameters`: the marks of arguments, each with its end
    - `free`: the start of a tag whose name is the name of the argument, such as `<city>`
    - `known`: the argument names that a `free` tag may have; empty if all names are allowed
    - `token`: precedes every tag, so that tags differ from text in a value
    - `loose`: maps each end without its namespace to the complete end
    - `has_lines`: models write each value on separate lines, so a line end at the start or at the
      end of a value is not part of the value
    - `namespaces`: the element exists once for each namespace, which replaces `*` in the marks
    """

    call: str
    end: str
    parameters: dict[str, str]
    free: str = ""
    name: str = ""
    token: str = ""
    known: frozenset[str] = frozenset()
    has_lines: bool = False
    loose: dict[str, str] = {}
    namespaces: tuple[str, ...] = ()

    def variants(self) -> Iterator["Element"]:
        """Yield the element in each namespace, or the element itself if it has no namespaces."""
        if not self.namespaces:
            yield self
        for space in self.namespaces:
            yield replace(
                self,
                call=self.call.replace("*", space),
                end=self.end.replace("*", space),
                parameters=_in_namespace(self.parameters, space),
                loose=_in_namespace(self.loose, space),
                namespaces=(),
            )


def _in_namespace(pairs: Mapping[str, str], space: str) -> dict[str, str]:
    return {mark.replace("*", space): end.replace("*", space) for mark, end in pairs.items()}


class Format(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """A textual format of calls: a row of the table."""

    name: str
    shape: str
    example: str = ""
    marks: dict[str, str] = {}
    sections: dict[str, str] = {}
    closers: tuple[str, ...] = ()
    anchor: Anchor = "anywhere"
    is_marked: bool = True
    next: str = ""
    parts: dict[str, tuple[str, ...]] = {}
    elements: tuple[Element, ...] = ()
    has_id: bool = False
    is_sure: bool = False
    is_empty_doubtful: bool = False

    @cached_property
    def openings(self) -> tuple[str, ...]:
        """The marks with which calls begin."""
        return (*self.marks, *(element.call for element in self.variants))

    @cached_property
    def ends(self) -> tuple[str, ...]:
        """The marks with which calls end."""
        return tuple(dict.fromkeys((*filter(None, self.marks.values()), *self.closers)))

    @cached_property
    def variants(self) -> tuple[Element, ...]:
        return tuple(chain.from_iterable(element.variants() for element in self.elements))

    @cached_property
    def brackets(self) -> tuple[tuple[str, str], ...]:
        """The pairs of marks around calls and their parts. The second mark may be missing ("")."""
        elements = (((tag.call, tag.end), *tag.parameters.items()) for tag in self.variants)
        # the other tags of the shape "pairs" are in `parts`, without their closing tags
        tags = self.parts.values() if self.shape == "pairs" else ()
        return (
            *self.marks.items(),
            *self.sections.items(),
            *chain.from_iterable(elements),
            *((tag, end_of(tag)) for tag in chain.from_iterable(tags)),
        )

    def part(self, name: str) -> str:
        """Return the only mark of a part."""
        (mark,) = self.parts[name]
        return mark


def end_of(tag: str) -> str:
    """Return the closing tag of `<tag>`."""
    return f"</{tag[1:]}"


class ConventionTexts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The texts of a convention, a way to describe tools in a prompt."""

    name: str
    syntaxes: tuple[str, ...]
    marks: tuple[str, ...]
    instructions: str
    call: str
    result: str
    calls: str = "%s"
    between_tools: str = "\n"
    between_calls: str = "\n"


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The names of the members of a call in JSON, as models write them."""

    names: tuple[str, ...]
    arguments: tuple[str, ...]
    wrappers: tuple[str, ...]


class Messages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The marks of replies that consist of messages, with reasoning (`thoughts`) or text."""

    thoughts: dict[str, str]
    texts: dict[str, str]
    header_starts: tuple[str, ...]
    header_end: str
    channel: str
    message_ends: tuple[str, ...]
    turn_ends: tuple[str, ...]
    reply_ends: tuple[str, ...]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `formats.toml`."""

    formats: tuple[Format, ...]
    named: tuple[Format, ...]
    conventions: tuple[ConventionTexts, ...]
    turn_ends: frozenset[str]
    turn_begins: frozenset[str]
    more_closers: frozenset[str]
    more_tags: frozenset[str]
    ordinary_tags: frozenset[str]
    control_beginnings: tuple[str, ...]
    leaks: tuple[str, ...]
    envelope: Envelope
    reasoning: dict[str, str]
    answers: dict[str, str]
    wrapped_answers: dict[str, str]
    messages: Messages
    results: dict[str, str]


_FILE = files("proxy.guardrails.rescue") / "formats.toml"
TABLE = msgspec.toml.decode(_FILE.read_bytes(), type=Table)
FORMATS: Mapping[str, Format] = {row.name: row for row in (*TABLE.formats, *TABLE.named)}
