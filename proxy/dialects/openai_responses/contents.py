"""The content of messages and of results: texts, pictures, sounds, and files that are text."""

from base64 import b64decode
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from proxy.conversation import json
from proxy.dialects.foreign_history import Medium, Part, write_picture
from proxy.dialects.raw_json import JsonText, Members, Node, own_text
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
    kind = members.value("type")
    if kind in _TEXTS:
        return members.need("text").text()
    match kind:
        case "refusal":
            return members.need("refusal").text()
        case "input_image":
            return _picture(members)
        case "input_file":
            return _file(members)
        case "input_audio":
            source = members.need("input_audio").source
            return Medium(json.join_object({"type": b'"input_audio"', "input_audio": source}))
        case _:
            return members.text("text")


def _picture(members: Members) -> Medium:
    if "image_url" not in members:
        raise InvalidRequest(_NO_FETCHING, members.at("file_id"))
    url = members["image_url"].text()
    if url.text[:5].lower() != "data:":
        raise InvalidRequest(_NO_FETCHING, members.at("image_url"))
    return write_picture(url.source)


def _file(members: Members) -> JsonText:
    """Read a file that came with the request, under its name."""
    if "file_data" not in members:
        raise InvalidRequest(_NO_FETCHING, members.at("file_data"))
    text = _text_of(members.word("file_data"))
    if text is None:
        raise InvalidRequest(_NO_TEXT, members.at("file_data"))
    return own_text(f"{members.word('filename', 'File')}:\n{text}")


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


def is_failure(kind: str, members: Members) -> bool:
    return kind == "apply_patch_call_output" and members.value("status") == "failed"


def _command_result(node: Node) -> str:
    """Write what one command has printed, and how it ended if that was not well."""
    members = node.members()
    printed = [members.word("stdout"), members.word("stderr")]
    outcome = members.inner("outcome")
    code = outcome.value("exit_code")
    if outcome.value("type") == "timeout":
        printed.append("[timed out]")
    elif code:
        printed.append(f"[exit code {json.dump_text(code)}]")
    return "\n".join(text.removesuffix("\n") for text in printed if text)
