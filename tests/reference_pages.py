"""Writes the reference pages of the documentation from the code: settings, headers, formats.

python -m tests.reference_pages docs/reference
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from proxy.cli.configuration import toml_value
from proxy.conversation.json import JsonValue
from proxy.guardrails.rescue.formats import TABLE, Format
from proxy.settings import Settings
from proxy.settings.models import ServedModel
from proxy.settings.tool_servers import ToolServer
from tests.header_table import HEADERS

_SETTINGS = """# Settings

Flags take precedence over environment variables, then comes the settings file, then the defaults.
The file is `temper.toml` in the working directory, or the file given by `--config`.

| command | output |
|---|---|
| `temper config --defaults` | a settings file with all settings and their defaults |
| `temper config` | the effective settings, each with its source |
| `temper check` | invalid settings, and files, folders, programs and models that do not exist |

- The environment variable of `server.port` is `TEMPER_SERVER__PORT`.
- Unknown names are errors, in the file and in the environment. A variable that resembles no
  setting, such as Docker's `TEMPER_NAME` for a link, only causes a warning.
- In the file, `${NAME}` is replaced by the environment variable `NAME`.
- A key can be stored in a separate file: `api_key_file`, or `TEMPER_SERVER__API_KEY_FILE`.
- An address other than loopback requires `server.api_key` or `server.api_keys_file`.
"""
_HEADERS = """# Headers

*In* headers are sent by clients, *out* headers by Temper. The head of a stream is sent before the
outcome is known, so a stream reports the outcome in a comment before `[DONE]`.
"""
_FORMATS = """# Formats of calls

Temper reads calls in these formats from the text of a reply, if the engine has not parsed them.
Each example is a reply that calls `get_weather` with `{"city": "Paris"}`. The model's
[profile](../guides/models.md) names the formats that are tried first. A format without marks is
read only at the end of a reply.

A new format of a known shape is one row of `proxy/guardrails/rescue/formats.toml`
([how](../contributing.md#a-first-change-a-new-format)).
"""
_NO_CALLS = "\nIt is not a call: its content is shown or removed, never executed.\n"
_NAMED_FORMATS = """## Formats with the name of a tool

Temper recognizes these calls only by the name of an offered tool.
"""
_NAMED = {"models": ServedModel(), "mcp": ToolServer()}
_OMITTED = frozenset({"models.NAME.alias"})  # the setting's own name is the alias


def pages() -> Mapping[str, str]:
    pages = {"settings.md": _settings(), "headers.md": _headers(), "formats.md": _formats()}
    return {name: "\n".join(lines) for name, lines in pages.items()}


def write(folder: Path) -> None:
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


def _settings() -> Iterator[str]:
    yield _SETTINGS
    sections = ((name, value) for name, value in Settings() if isinstance(value, BaseModel))
    for name, section in sections:
        yield from _section(name, section)
    for name, value in _NAMED.items():
        yield from _section(f"{name}.NAME", value)


def _section(title: str, section: BaseModel) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| setting | default | meaning |\n|---|---|---|"
    defaults = section.model_dump(mode="json")
    for name, field in type(section).model_fields.items():
        setting = f"{title}.{name}"
        if setting not in _OMITTED:
            yield _row(setting, field, defaults[name])
    yield ""


def _row(setting: str, field: FieldInfo, default: JsonValue) -> str:
    return f"| `{setting}` | `{toml_value(default)}` | {field.description} |"


def _headers() -> Iterator[str]:
    yield _HEADERS
    yield "| direction | header | meaning |\n|---|---|---|"
    for header in HEADERS:
        yield f"| {header.direction} | `{header.name}` | {header.meaning} |"
    yield ""


def _formats() -> Iterator[str]:
    yield _FORMATS
    for row in TABLE.formats:
        yield from _format(row)
    yield _NAMED_FORMATS
    for row in TABLE.named:
        yield from _format(row)


def _format(row: Format) -> Iterator[str]:
    """Return the section of a format; the fence of its example is longer than any fence in it."""
    position = row.anchor.removesuffix("_start")
    position = "" if row.anchor == "anywhere" else f", only at the start of a {position}"
    yield f"### {row.name}\n\nShape `{row.shape}`{position}."
    if row.shape in ("quoted", "result"):
        yield _NO_CALLS.rstrip()
    yield f"\n````text\n{row.example}\n````\n"


if __name__ == "__main__":
    write(Path(sys.argv[1]))
