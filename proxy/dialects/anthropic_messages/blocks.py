"""The blocks of a message's content: read into texts and pictures in the language of backends."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from proxy.dialects.anthropic_messages.table import BLOCKS
from proxy.dialects.foreign_history import Part, write_picture
from proxy.dialects.raw_json import Node, Text, concatenate, own_text, require
from proxy.errors import InvalidRequest
from proxy.facts import Omitted

_AVAILABLE = own_text("Tool "), own_text(" is available now.")
# members in which the results of a vendor's own tools carry text in the open
_OPEN = ("title", "url", "text", "stdout", "stderr")
_NESTED = ("content", "source", "data")
_BINARY = "base64"
_DEEPEST = 4

_NO_IMAGE = (
    "capability_rejected: image_block (Temper fetches nothing: send the picture itself, as base64)"
)
_NO_DOCUMENT = (
    "capability_rejected: document_block (only documents of plain text can be read: send its text)"
)


class Block(NamedTuple):
    """A block of content: its type, its members, and where it stands."""

    kind: str
    members: Mapping[str, Node]
    path: str

    def text(self, name: str) -> Text | None:
        """Return a member that is a string, None where it is absent."""
        return self.members[name].text() if name in self.members else None


@dataclass(slots=True)
class Findings:
    """What is found beside texts and pictures: names of tools, and what is left out."""

    omitted: dict[str, None] = field(default_factory=dict)
    named: dict[str, None] = field(default_factory=dict)

    def omit(self, what: str) -> None:
        """Take note of a part that means nothing here."""
        self.omitted[what] = None

    def name(self, tool: str) -> None:
        """Take note of a tool that can be used from here on."""
        self.named[tool] = None

    @property
    def facts(self) -> tuple[Omitted, ...]:
        """What was left out, each kind once."""
        return tuple(map(Omitted, self.omitted))


def blocks_of(content: Node | None) -> list[Block]:
    """Return the blocks of a content; a string is one block of text."""
    if content is None:
        return []
    if content.is_text:
        return [Block("text", {"text": content}, content.path)]
    found: list[Block] = []
    for element in content.elements():
        members = element.members()
        kind = require(members, "type", element.path).text().text
        found.append(Block(kind, members, element.path))
    return found


def parts_of(block: Block, findings: Findings) -> list[Part]:
    """Return the texts and pictures of a block, whoever says it."""
    if (read := _READERS.get(block.kind)) is not None:
        return read(block, findings)
    if BLOCKS.drops(block.kind):
        findings.omit(block.kind)
        return [*_open_texts(block.members.get("content"), _DEEPEST)]
    if (text := block.members.get("text")) is not None and text.is_text:
        return [text.text()]
    findings.omit("misplaced_block" if block.kind in BLOCKS else "unknown_block")
    return []


def texts_of(block: Block, findings: Findings) -> list[Text]:
    """Return the texts of a block, said by somebody who shows no pictures."""
    parts = parts_of(block, findings)
    texts = [part for part in parts if isinstance(part, Text)]
    if len(texts) < len(parts):
        findings.omit("misplaced_block")
    return texts


def _text(block: Block, _: Findings) -> list[Part]:
    return [require(block.members, "text", block.path).text()]


def _image(block: Block, _: Findings) -> list[Part]:
    source = require(block.members, "source", block.path)
    members = source.members()
    if require(members, "type", source.path).value != _BINARY:
        raise InvalidRequest(_NO_IMAGE, source.path)
    kind = require(members, "media_type", source.path).text()
    data = require(members, "data", source.path).text()
    url = concatenate(own_text("data:"), kind, own_text(";base64,"), data)
    return [write_picture(url.source)]


def _document(block: Block, findings: Findings) -> list[Part]:
    source = require(block.members, "source", block.path)
    members = source.members()
    match require(members, "type", source.path).value:
        case "text":
            parts: list[Part] = [require(members, "data", source.path).text()]
        case "content":
            inner = blocks_of(require(members, "content", source.path))
            parts = [part for one in inner for part in parts_of(one, findings)]
        case _:
            raise InvalidRequest(_NO_DOCUMENT, source.path)
    headings = [block.text(name) for name in ("title", "context")]
    return [*(heading for heading in headings if heading is not None), *parts]


def _search_result(block: Block, findings: Findings) -> list[Part]:
    headings = [block.text(name) for name in ("title", "source")]
    inner = blocks_of(block.members.get("content"))
    parts = [part for one in inner for part in parts_of(one, findings)]
    return [*(heading for heading in headings if heading is not None), *parts]


def _tool_reference(block: Block, findings: Findings) -> list[Part]:
    name = require(block.members, "tool_name", block.path).text()
    findings.name(name.text)
    before, behind = _AVAILABLE
    return [concatenate(before, name, behind)]


def _read_found_tools(block: Block, findings: Findings) -> list[Part]:
    """Read what a vendor's search for tools has found: from here on they are offered."""
    findings.omit(block.kind)
    content = block.members.get("content")
    if content is None or not isinstance(content.value, dict):
        return []
    found = blocks_of(content.members().get("tool_references"))
    return [part for one in found for part in parts_of(one, findings)]


def _compaction(block: Block, _: Findings) -> list[Part]:
    summary = block.text("content")
    return [] if summary is None else [summary]


_Reader = Callable[[Block, Findings], list[Part]]
_READERS: Mapping[str, _Reader] = MappingProxyType(
    {
        "text": _text,
        "image": _image,
        "document": _document,
        "search_result": _search_result,
        "tool_reference": _tool_reference,
        "tool_search_tool_result": _read_found_tools,
        "compaction": _compaction,
    }
)


def _open_texts(content: Node | None, depth: int) -> Iterator[Text]:
    """Find the texts that the result of a vendor's tool carries in the open."""
    if content is None or not depth:
        return
    if content.is_text:
        yield content.text()
    elif isinstance(content.value, list):
        for element in content.elements():
            yield from _open_texts(element, depth - 1)
    elif isinstance(content.value, dict) and content.value.get("type") != _BINARY:
        yield from _texts_within(content.members(), depth - 1)


def _texts_within(members: Mapping[str, Node], depth: int) -> Iterator[Text]:
    for name in _OPEN:
        if name in members and members[name].is_text:
            yield members[name].text()
    for name in _NESTED:
        yield from _open_texts(members.get(name), depth)


def as_arguments(value: Node | None) -> Text:
    """Write the input of a call as the text that calls of chat completions have."""
    return own_text("{}") if value is None else own_text(value.source.decode())
