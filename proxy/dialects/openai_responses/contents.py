"""The content of messages and of results: texts, pictures, sounds, and files that are text."""

from base64 import b64decode
from collections.abc import Callable, Mapping
from urllib.parse import unquote_to_bytes

from proxy.conversation import json
from proxy.dialects.foreign_history import Medium, Part, write_picture
from proxy.dialects.raw_json import JsonText, Node, own_text, require
from proxy.errors import InvalidRequest
from proxy.facts import Fact, Omitted

_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_NO_FETCHING = 'Temper never fetches addresses or files. Send the content itself as a "data:" URL.'
_NO_TEXT = "Only files that are text can be read. Send what it says as text."
_CONTROLS = frozenset(map(chr, range(32))) - frozenset("\t\n\f\r")


def read_content(content: Node | None, facts: list[Fact]) -> list[Part]:
    """Read a string, or parts; what nobody knows and has no text is left out, and reported."""
    if content is None:
        return []
    if content.is_text:
        return [content.text()]
    parts: list[Part] = []
    for node in content.elements():
        found = _read_part(node)
        if found is None:
            facts.append(Omitted("content_part"))
        else:
            parts.append(found)
    return parts


def texts_in(content: Node | None, facts: list[Fact]) -> list[JsonText]:
    """Read the texts of a content, and nothing else of it."""
    return [part for part in read_content(content, facts) if isinstance(part, JsonText)]


def _read_part(node: Node) -> Part | None:
    members = node.members()
    kind = members["type"].value if "type" in members else None
    if kind in _TEXTS:
        return require(members, "text", node.path).text()
    match kind:
        case "refusal":
            return require(members, "refusal", node.path).text()
        case "input_image":
            return _picture(members, node.path)
        case "input_file":
            return _file(members, node.path)
        case "input_audio":
            source = require(members, "input_audio", node.path).source
            return Medium(json.join_object({"type": b'"input_audio"', "input_audio": source}))
        case _:
            return members["text"].text() if "text" in members else None


def _picture(members: Mapping[str, Node], path: str) -> Medium:
    if "image_url" not in members:
        raise InvalidRequest(_NO_FETCHING, f"{path}.file_id")
    url = members["image_url"].text()
    if url.text[:5].lower() != "data:":
        raise InvalidRequest(_NO_FETCHING, f"{path}.image_url")
    return write_picture(url.source)


def _file(members: Mapping[str, Node], path: str) -> JsonText:
    """Read a file that came with the request, under its name."""
    if "file_data" not in members:
        raise InvalidRequest(_NO_FETCHING, f"{path}.file_data")
    text = _text_of(members["file_data"].text().text)
    if text is None:
        raise InvalidRequest(_NO_TEXT, f"{path}.file_data")
    name = members["filename"].text().text if "filename" in members else "File"
    return own_text(f"{name}:\n{text}")


def _text_of(data: str) -> str | None:
    """Return what a file says, from a `data:` URL or from its bytes in base 64."""
    decode: Callable[[str], bytes] = b64decode
    if data[:5].lower() == "data:":
        described, _, data = data.partition(",")
        decode = b64decode if described.endswith(";base64") else unquote_to_bytes
    try:
        text = decode(data).decode()
    except ValueError:
        return None
    return None if text.startswith("%PDF") or not _CONTROLS.isdisjoint(text) else text


def result_in(kind: str, output: Node | None, facts: list[Fact]) -> list[Part]:
    """Read what an item of this type says of the call that it answers."""
    if output is None or output.is_text:
        return read_content(output, facts)
    if kind == "shell_call_output":
        return [own_text("\n".join(map(_command_result, output.elements())))]
    if isinstance(output.value, list):
        return read_content(output, facts)
    return [own_text(output.source.decode())]  # some clients send an object as it is


def is_failure(kind: str, members: Mapping[str, Node]) -> bool:
    """Return whether an item says that its call has failed."""
    status = members.get("status")
    is_patch = kind == "apply_patch_call_output"
    return is_patch and status is not None and status.value == "failed"


def _command_result(node: Node) -> str:
    """Write what one command has printed, and how it ended if that was not well."""
    members = node.members()
    printed = [_string(members.get("stdout")), _string(members.get("stderr"))]
    outcome = members["outcome"].members() if "outcome" in members else {}
    kind, code = (
        outcome[name].value if name in outcome else None for name in ("type", "exit_code")
    )
    if kind == "timeout":
        printed.append("[timed out]")
    elif code:
        printed.append(f"[exit code {json.dump_text(code)}]")
    return "\n".join(text.removesuffix("\n") for text in printed if text)


def _string(node: Node | None) -> str:
    return "" if node is None else node.text().text
