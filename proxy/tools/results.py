"""Return values of tools as text: for the model, and for people."""

import logging
from collections.abc import Callable
from typing import TypeAlias

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

logger = logging.getLogger(__name__)

DONE = "Done."
ERROR = "Error: "

# A truncated result keeps its start and its end, because headings come first, and errors and totals
# come last. The start gets this fraction of the kept characters.
_HEAD = 2 / 3
_VALUE = "value"

# A template with members of a result, as in "{city}: {temperature}", or a function of the result.
Format: TypeAlias = str | Callable[[object], str]


def text_of(value: object) -> str:
    """Return the text of a result: strings unchanged, everything else as compact JSON."""
    if value is None:  # models repeat a call whose result is empty
        return DONE
    if isinstance(value, str):
        return value
    try:
        return to_json(value, inf_nan_mode="strings", fallback=str).decode()
    except (PydanticSerializationError, ValueError):
        return str(value)


def format_result(value: object, form: Format, tool: str) -> str | None:
    """Format a result by a template or function; if that fails, log a warning and return None.

    In a template, `{value}` stands for the whole result.
    """
    try:
        if not isinstance(form, str):
            return str(form(value))
        members = to_jsonable_python(value, fallback=str)
        return form.format_map({_VALUE: value, **(members if isinstance(members, dict) else {})})
    except Exception as error:
        logger.warning("the result of %s could not be formatted: %s", tool, type(error).__name__)
        logger.debug("the result of %s could not be formatted", tool, exc_info=error)
        return None


def cut(text: str, most: int) -> str:
    """Cut a text to `most` characters: a note replaces its middle.

    Characters that UTF-8 cannot encode, as in file names, become question marks.
    """
    text = str.__str__(text)  # the JSON encoder rejects subclasses of str
    if len(text) > most:
        # The note counts towards the limit. It shows that a part is missing, so the model can
        # request the part.
        note = f"\n[... the middle of {len(text)} characters is left out ...]\n"
        available = max(0, most - len(note))
        head = int(available * _HEAD)
        text = text[:head] + note + text[len(text) - (available - head) :]
        text = text if available else note.strip()[:most]
    return text.encode(errors="replace").decode()


def failure(message: str) -> str:
    return ERROR + message


def on_one_line(error: BaseException) -> str:
    """Return the type and the message of an error, without its traceback."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - `__str__` of a tool's exception may raise
        message = ""
    kind = type(error).__name__
    return f"{kind}: {message}" if message else kind
