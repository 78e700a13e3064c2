"""Printed output: untrusted text can neither control the terminal nor imitate other lines."""

import io
import re
from pathlib import Path

import pytest
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

import proxy
import temper_evals
from proxy.cli.commands import print_json
from proxy.cli.output import echo
from proxy.cli.safe_console import SafeConsole
from proxy.conversation import json
from tests.fakes.hostile_text import HOSTILE, has_control

_DIRECT = re.compile(r"click\.s?echo\(|\bConsole\(|(?<![.\w])print\(")
# how many direct calls a file may contain: one in each escaping function, two that print TOML
_ALLOWED = {"output.py": 1, "safe_console.py": 1, "app.py": 2}


@pytest.mark.fault("F103")
@pytest.mark.parametrize("text", HOSTILE)
def test_echo_prints_neither_control_characters_nor_line_breaks_of_its_text(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    echo(text, fg="red")
    output = capsys.readouterr().out
    assert not has_control(output.removesuffix("\n"))


def test_echo_prints_line_breaks_if_has_lines_is_set(capsys: pytest.CaptureFixture[str]) -> None:
    echo("a\n\tb\r\x1b[2J", has_lines=True)
    assert capsys.readouterr().out == "a\n\tb\\r\\x1b[2J\n"


def test_echo_prints_unusual_spaces_and_zero_width_joiners_unchanged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "Bonjour\u00a0! \u3000 \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    echo(text)
    assert capsys.readouterr().out == f"{text}\n"


@pytest.mark.fault("F103")
@pytest.mark.parametrize("text", HOSTILE)
def test_printed_json_has_no_control_characters_and_decodes_to_the_value(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_json({"a": text})
    output = capsys.readouterr().out
    assert not has_control(output.removesuffix("\n"))
    assert json.parse(output) == {"a": text}


@pytest.mark.fault("F103")
@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("make", [str, Text, lambda text: _table_of(text)])
def test_a_safe_console_prints_no_control_characters(text: str, make: type[str]) -> None:
    stream = io.StringIO()
    renderable: RenderableType = make(text)
    SafeConsole(file=stream, width=80).print(renderable)
    assert not has_control(stream.getvalue().replace("\n", "").replace("\t", ""))


@pytest.mark.fault("F103")
def test_a_safe_console_prints_markup_in_text_literally() -> None:
    stream = io.StringIO()
    SafeConsole(file=stream, width=80).print("[link=http://evil]a[/link] :smile:")
    assert stream.getvalue() == "[link=http://evil]a[/link] :smile:\n"


def _table_of(text: str) -> Table:
    table = Table()
    table.add_column(text)
    table.add_row(text)
    return table


@pytest.mark.fault("F103")
def test_only_the_escaping_functions_print_directly() -> None:
    roots = (Path(proxy.__file__).parent, Path(temper_evals.__file__).parent)
    files = [file for root in roots for file in root.rglob("*.py")]
    counts = {
        str(file): len(_DIRECT.findall(file.read_text(encoding="utf-8")))
        for file in files
        if "scenarios" not in file.parts  # scenarios contain programs as data
    }
    assert not {file for file, n in counts.items() if n > _ALLOWED.get(Path(file).name, 0)}
