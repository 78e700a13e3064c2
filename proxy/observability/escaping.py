"""What clients and models wrote, made safe to show: it can neither forge a line nor steer."""

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonValue


def escaped(text: str) -> str:
    """Show what is invisible: control characters, ANSI and bidi sequences, line separators."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        character
        if character.isprintable() and character != "\\"
        else character.encode("unicode_escape").decode()
        for character in text
    )


def visible_json(value: JsonValue) -> str:
    """Write a value as JSON on several lines, with escapes of JSON for all that is invisible."""
    lines = msgspec.json.format(json.dump(value), indent=2).decode().split("\n")
    return "\n".join(map(_visible, lines))


def _visible(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() else _json_escape(one) for one in line)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
