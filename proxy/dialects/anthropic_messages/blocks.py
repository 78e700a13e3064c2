"""The blocks of a message's content: read into texts and pictures in the language of backends."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.dialects.anthropic_messages.table import BLOCKS
from proxy.dialects.foreign_history import Part, write_picture
from proxy.dialects.raw_json import JsonText, Members, Node, concatenate, own_text
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


class RawBlock(NamedTuple):
    """A block of content: its type and its members."""

    kind: str
    members: Members


@dataclass(slots=True)
class Findings:
    """What is found beside texts and pictures: names of tools, and what is left out."""

    omitted: dict[str, None] = field(default_factory=dict)
    named: dict[str, None] = field(default_factory=dict)

    def omit(self, what: str) -> None:
        self.omitted[what] = None

    @property
    def facts(self) -> tuple[Omitted, ...]:
        """What was left out, each kind once."""
        return tuple(map(Omitted, self.omitted))


def blocks_of(content: Node | None) -> list[RawBlock]:
    """Return the blocks of a content; a string is one block of text."""
    if content is None:
        return []
    if content.is_text:
        return [RawBlock("text", Members({"text": content}, content.path))]
    members = [element.members() for element in content.elements()]
    return [RawBlock(one.need("type").text().text, one) for one in members]


def parts_of(block: RawBlock, findings: Findings) -> list[Part]:
    """Return the texts and pictures of a block, whoever says it."""
    if (read := _READERS.get(block.kind)) is not None:
        return read(block.members, findings)
    if BLOCKS.drops(block.kind):
        findings.omit(block.kind)
        return [*_open_texts(block.members.get("content"), _DEEPEST)]
    if (text := block.members.get("text")) is not None and text.is_text:
        return [text.text()]
    findings.omit("misplaced_block" if block.kind in BLOCKS else "unknown_block")
    return []


def texts_of(block: RawBlock, findings: Findings) -> list[JsonText]:
    """Return the texts of a block, said by somebody who shows no pictures."""
    parts = parts_of(block, findings)
    texts = [part for part in parts if isinstance(part, JsonText)]
    if len(texts) < len(parts):
        findings.omit("misplaced_block")
    return texts


def _inner_parts(content: Node | None, findings: Findings) -> list[Part]:
    return [part for one in blocks_of(content) for part in parts_of(one, findings)]


def _texts_of(members: Members, *names: str) -> list[JsonText]:
    return [text for name in names if (text := members.text(name)) is not None]


def _image(members: Members, _: Findings) -> list[Part]:
    source = members.need("source").members()
    if source.need("type").value != _BINARY:
        raise InvalidRequest(_NO_IMAGE, source.path)
    kind, data = source.need("media_type").text(), source.need("data").text()
    url = concatenate(own_text("data:"), kind, own_text(";base64,"), data)
    return [write_picture(url.source)]


def _document(members: Members, findings: Findings) -> list[Part]:
    source = members.need("source").members()
    match source.need("type").value:
        case "text":
            parts: list[Part] = [source.need("data").text()]
        case "content":
            parts = _inner_parts(source.need("content"), findings)
        case _:
            raise InvalidRequest(_NO_DOCUMENT, source.path)
    return [*_texts_of(members, "title", "context"), *parts]


def _search_result(members: Members, findings: Findings) -> list[Part]:
    parts = _inner_parts(members.get("content"), findings)
    return [*_texts_of(members, "title", "source"), *parts]


def _tool_reference(members: Members, findings: Findings) -> list[Part]:
    name = members.need("tool_name").text()
    findings.named[name.text] = None
    before, behind = _AVAILABLE
    return [concatenate(before, name, behind)]


def _read_found_tools(members: Members, findings: Findings) -> list[Part]:
    """Read what a vendor's search for tools has found: from here on they are offered."""
    findings.omit("tool_search_tool_result")
    if not isinstance(members.value("content"), dict):
        return []
    return _inner_parts(members.inner("content").get("tool_references"), findings)


_Reader = Callable[[Members, Findings], list[Part]]
_READERS: Mapping[str, _Reader] = {
    "text": lambda members, _: [members.need("text").text()],
    "image": _image,
    "document": _document,
    "search_result": _search_result,
    "tool_reference": _tool_reference,
    "tool_search_tool_result": _read_found_tools,
    "compaction": lambda members, _: [*_texts_of(members, "content")],
}


def _open_texts(content: Node | None, depth: int) -> Iterator[JsonText]:
    """Find the texts that the result of a vendor's tool carries in the open."""
    if content is None or not depth:
        return
    if content.is_text:
        yield content.text()
    elif isinstance(content.value, list):
        for element in content.elements():
            yield from _open_texts(element, depth - 1)
    elif isinstance(content.value, dict) and content.value.get("type") != _BINARY:
        members = content.members()
        yield from (
            members[name].text() for name in _OPEN if name in members and members[name].is_text
        )
        for name in _NESTED:
            yield from _open_texts(members.get(name), depth - 1)
