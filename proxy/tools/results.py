"""What a model reads of what a tool returned, and what people see of it."""

import logging
from collections.abc import Callable
from typing import TypeAlias

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

logger = logging.getLogger(__name__)

DONE = "Done."
ERROR = "Error: "

_HEAD = 2 / 3  # of what is kept of a long result
_VALUE = "value"

# A template over the members of a result, or a function of it.
Format: TypeAlias = str | Callable[[object], str]


def text_of(value: object) -> str:
    """Write a result: text as it is, anything else as compact JSON."""
    if value is None:
        return DONE
    if isinstance(value, str):
        return value
    try:
        return to_json(value, inf_nan_mode="strings", fallback=str).decode()
    except (PydanticSerializationError, ValueError):
        return str(value)


def format_result(value: object, form: Format, tool: str) -> str | None:
    """Write a result in a form of its tool's own; None, and a warning, where that fails.

    A template names the members of the result, or `value` for the result itself.
    """
    try:
        if not isinstance(form, str):
            return str(form(value))
        members = to_jsonable_python(value, fallback=str)
        return form.format_map({_VALUE: value, **(members if isinstance(members, dict) else {})})
    except Exception as error:
        logger.warning("the format of %s failed: %s", tool, type(error).__name__)
        logger.debug("the format of %s failed", tool, exc_info=error)
        return None


def cut(text: str, most: int) -> str:
    """Keep the beginning and the end of a text, at most so many characters.

    What UTF-8 cannot hold, as names of files may, becomes a question mark.
    """
    text = str.__str__(text)  # a string of a program's own class is none that JSON takes
    if len(text) > most:
        note = f"\n[... the middle of {len(text)} characters is left out ...]\n"
        room = max(0, most - len(note))
        head = int(room * _HEAD)
        text = text[:head] + note + text[len(text) - (room - head) :]
        text = text if room else note.strip()[:most]
    return text.encode(errors="replace").decode()


def failure(words: str) -> str:
    return ERROR + words


def on_one_line(error: BaseException) -> str:
    """Name an error and say what it says, without what led to it."""
    try:
        words = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - an error of somebody else's, which may not even print
        words = ""
    kind = type(error).__name__
    return f"{kind}: {words}" if words else kind
