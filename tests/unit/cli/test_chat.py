"""`temper chat`: the tools of Python files, and the terminal output."""

from pathlib import Path
from typing import cast

import pytest

from proxy.agents.results import AskedAgain, Progress, Text, Thought
from proxy.cli.chat import Chat, ChatWriter, describe_call, read_tools
from proxy.cli.status_line import StatusLine
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import ToolCall
from proxy.errors import InvalidConfiguration
from proxy.mcp.confirmations import Decision
from proxy.mcp.definitions import ServedTool

PLAIN = '''
from os.path import join

def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return city

def _helper() -> None: ...
'''
MARKED = '''
from temper import Toolset, tool

@tool(needs_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return path

def helper() -> None: ...
more = Toolset([helper])
'''


def write(folder: Path, text: str, name: str = "tools.py") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("text", "names"), [(PLAIN, ["get_weather"]), (MARKED, ["delete", "helper"])]
)
def test_all_public_functions_are_tools_unless_some_have_the_tool_decorator(
    tmp_path: Path, text: str, names: list[str]
) -> None:
    assert [tool.name for tool in read_tools([write(tmp_path, text)])] == names


def test_functions_of_several_files_are_tools(tmp_path: Path) -> None:
    files = [write(tmp_path, PLAIN), write(tmp_path, MARKED, "more.py")]
    assert [tool.name for tool in read_tools(files)] == ["get_weather", "delete", "helper"]


@pytest.mark.parametrize(
    ("text", "name", "problem"),
    [
        ("def f(:", "tools.py", "failed: SyntaxError"),
        ("1 / 0", "tools.py", "failed: ZeroDivisionError: division by zero"),
        ("from os.path import join", "tools.py", "has no public function"),
        ("city = 'Oslo'", "tools.txt", "is not a Python file"),
    ],
)
def test_a_file_without_tools_is_reported_in_one_sentence(
    tmp_path: Path, text: str, name: str, problem: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=problem) as caught:
        read_tools([write(tmp_path, text, name)])
    assert str(caught.value).startswith(f"--tools: {tmp_path / name} ")


def test_two_tools_with_the_same_name_are_refused(tmp_path: Path) -> None:
    files = [write(tmp_path, PLAIN), write(tmp_path, PLAIN, "again.py")]
    with pytest.raises(InvalidConfiguration, match="two tools have the name"):
        read_tools(files)


def test_control_characters_in_the_text_of_a_model_are_escaped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = ChatWriter()
    screen.show(Text("a\x1b[2J\r\tb\u202ec\n"))
    assert capsys.readouterr().out == "a\\x1b[2J\\r\tb\\u202ec\n"


def test_reasoning_is_printed_only_if_shows_reasoning_is_set(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for tells, printed in ((False, ""), (True, "hm")):
        ChatWriter(shows_reasoning=tells).show(Thought("hm"))
        assert capsys.readouterr().out == printed


def test_a_note_starts_a_new_line(capsys: pytest.CaptureFixture[str]) -> None:
    screen = ChatWriter()
    screen.show(Text("so"))
    screen.show(Text(""))
    screen.show(AskedAgain("announcement"))
    screen.note("a call")
    assert capsys.readouterr().out == "so\n  a call\n"


@pytest.mark.fault("F103")
@pytest.mark.parametrize(
    ("arguments", "brief"),
    [
        ('{"city": "Oslo", "days": 3}', 'city="Oslo", days=3'),
        ("", ""),
        ('{"city": ', '{"city": '),
        ("[1]", "[1]"),
        ('{"a=1, b": 2}', '"a=1, b"=2'),
        ('{"a\\nb": "\\u001b[2J\\u202e\\u009b"}', '"a\\nb"="\\u001b[2J\\u202e\\u009b"'),
        ("\x1b[2J", "\\x1b[2J"),
        (f'{{"a": "{200 * "x"}"}}', f'a="{200 * "x"}"'),
    ],
)
def test_the_arguments_of_a_call_are_shown_as_keyword_arguments_if_they_are_an_object(
    arguments: str, brief: str
) -> None:
    assert describe_call(ToolCall("1", "get_weather", arguments)) == f"get_weather({brief})"


def test_long_names_and_values_of_a_call_are_truncated() -> None:
    call = ToolCall("1", 100 * "n", json.dump_text({100 * "a": 100 * "x"}))
    assert len(describe_call(call, longest=60)) < 200


@pytest.mark.fault("F103")
@pytest.mark.parametrize(
    ("arguments", "question", "printed"),
    [
        ({"a": "b\x1b[2J"}, '  call pay(a="b\\u001b[2J")? [y/N] ', ""),
        (
            {"a": "b" * 3000 + " && rm -rf /"},
            "  call pay(...)? [y/N] ",
            f'  pay(a="{"b" * 3000} && rm -rf /")\n',
        ),
        ({"c" * 300: 1}, "  call pay(...)? [y/N] ", f"  pay({'c' * 300}=1)\n"),
    ],
)
async def test_the_prompt_for_an_approval_shows_the_whole_call(
    arguments: JsonObject, question: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    questions: list[str] = []

    async def read(prompt: str) -> str:
        questions.append(prompt)
        return "y"

    chat = Chat(read, shows_reasoning=False)
    tool = ToolCall("1", "pay", json.dump_text(arguments))
    assert await chat.decide(cast("ServedTool", None), tool) is Decision.ALLOWED
    assert questions == [question]
    assert capsys.readouterr().out == printed


class RecordingStatusLine(StatusLine):
    """A status line that records its activities instead of drawing them."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[object] = []

    def begin(self, activity: object) -> None:
        self.noted.append(activity)

    def update(self, activity: object) -> None:
        self.noted.append(("as before", activity))


@pytest.mark.parametrize(
    ("progress", "noted"),
    [
        (Progress("reading"), ["reading the prompt"]),
        (Progress("reading", 0.0), [("as before", "reading the prompt")]),
        (Progress("reading", 0.404), [("as before", "reading the prompt 40 %")]),
        (Progress("generating"), ["generating"]),
        (Progress("reading", None, "empty"), ["retrying: an empty reply"]),
        (Progress("reading", None, "of a new kind"), ["retrying: of a new kind"]),
        (Progress("reading", 0.4, "empty"), []),
        (Progress("generating", None, "empty"), []),
    ],
)
def test_the_status_line_shows_the_progress_or_the_reason_of_a_retry(
    progress: Progress, noted: list[object]
) -> None:
    status = RecordingStatusLine()
    ChatWriter(status=status).show_progress(progress)
    assert status.noted == noted


def test_the_method_interrupt_returns_false_if_no_answer_is_running() -> None:
    async def read(_words: str) -> str:
        raise EOFError

    assert not Chat(read, shows_reasoning=False).interrupt()
