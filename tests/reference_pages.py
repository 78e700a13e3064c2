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

Flags win over the environment, that over the file, that over the defaults. The file is
`temper.toml` in the working directory or the one named by `--config`. `temper config --defaults`
prints one with every setting, `temper config` what counts and where each value comes from, and
`temper check` says whether yours are valid and what they name is there.

- The variable of `server.port` is `TEMPER_SERVER__PORT`.
- Unknown names are errors, in the file and in the environment; a variable that is no setting by
  far, as Docker's `TEMPER_NAME` for a link, is only a warning.
- In the file `${NAME}` stands for an environment variable.
- A key can be kept in a file of its own: `api_key_file`, or `TEMPER_SERVER__API_KEY_FILE`.
- Listening beyond loopback without `server.api_key` is refused.
"""
_HEADERS = """# Headers

In a stream the headers leave before the outcome is known, so the same facts come as one comment
before `[DONE]`.
"""
_FORMATS = """# Formats of calls

Temper reads these formats in the text of a reply, where an engine has not parsed them. Each example
is a reply that calls `get_weather` with `{"city": "Paris"}`. A
[profile](../guides/models.md) names the formats that are tried first. Formats without marks
count only at the end of a reply.

A new format of a known shape is one row of `proxy/guardrails/rescue/formats.toml`
([how](../contributing.md#a-first-change-a-new-format)).
"""
_NO_CALLS = "\nIt calls nothing: what it contains is shown or dropped, never run.\n"
_NAMED_FORMATS = """## Formats with the name of a tool

Only the names of the offered tools reveal these calls.
"""
_NAMED = {"models": ServedModel(), "mcp": ToolServer()}
_LEFT_OUT = frozenset({"models.NAME.alias"})  # its own name is the alias


def pages() -> Mapping[str, str]:
    written = {"settings.md": _settings(), "headers.md": _headers(), "formats.md": _formats()}
    return {name: "\n".join(lines) for name, lines in written.items()}


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
        if setting not in _LEFT_OUT:
            yield _row(setting, field, defaults[name])
    yield ""


def _row(setting: str, field: FieldInfo, default: JsonValue) -> str:
    return f"| `{setting}` | `{toml_value(default)}` | {field.description} |"


def _headers() -> Iterator[str]:
    yield _HEADERS
    yield "| direction | header | meaning |\n|---|---|---|"
    for one in HEADERS:
        yield f"| {one.direction} | `{one.name}` | {one.meaning} |"
    yield ""


def _formats() -> Iterator[str]:
    yield _FORMATS
    for row in TABLE.formats:
        yield from _format(row)
    yield _NAMED_FORMATS
    for row in TABLE.named:
        yield from _format(row)


def _format(row: Format) -> Iterator[str]:
    """Write a format with its example in a fence that the example cannot end."""
    anchor = row.anchor.removesuffix("_start")
    anchor = "" if row.anchor == "anywhere" else f", only at the start of a {anchor}"
    yield f"### {row.name}\n\nShape `{row.shape}`{anchor}."
    if row.shape in ("quoted", "result"):
        yield _NO_CALLS.rstrip()
    yield f"\n````text\n{row.example}\n````\n"


if __name__ == "__main__":
    write(Path(sys.argv[1]))
