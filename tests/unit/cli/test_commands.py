import sys

import pytest

from proxy.conversation import json
from tests.fakes.invoked import config, document, temper
from tests.fakes.tool_servers import PROGRAM


def tool_server(*options: str, tools: str = '["echo"]', ask: str = "[]") -> str:
    command = json.dump_text([sys.executable, "-P", PROGRAM, *options])
    named = f"tools = {tools}\nask = {ask}\n"
    return config(f"[mcp.fake]\ncommand = {command}\n{named}prefix = 'f_'\n")


def test_tools_are_listed_with_what_is_offered_and_a_digest() -> None:
    file = tool_server()
    result = temper("tools", "--config", file)
    assert result.exit_code == 0
    assert "fake  ready 2025-11-25" in result.stdout
    assert "echo  (offered as f_echo)  echo" in result.stdout
    assert "fail  (not offered)  does fail" in result.stdout
    listed = document(temper("tools", "--config", file, "--json"))["servers"]
    assert isinstance(listed, list)
    assert isinstance(listed[0], dict)
    assert f'digest = "{listed[0]["digest"]}"' in result.stdout


def test_tools_that_need_a_yes_are_marked() -> None:
    file = tool_server(tools='["echo", "fail"]', ask='["fail"]')
    shown = temper("tools", "--config", file).stdout
    assert "echo  (offered as f_echo)  echo" in shown
    assert "fail  (offered as f_fail, if a person says yes)  does fail" in shown
    listed = document(temper("tools", "--config", file, "--json"))["servers"]
    assert isinstance(listed, list)
    tools = listed[0]["tools"]  # type: ignore[index, call-overload]
    assert [one["name"] for one in tools if one["needs_yes"]] == ["fail"]  # type: ignore[index, union-attr, call-overload]


def test_a_tool_server_that_is_not_there_is_a_failure() -> None:
    file = config("[mcp.gone]\ncommand = ['/no/such/program']\n")
    result = temper("tools", "--config", file)
    assert (result.exit_code, "cannot run /no/such/program" in result.stdout) == (1, True)


def test_no_tool_servers_are_an_empty_list() -> None:
    assert document(temper("tools", "--json")) == {"servers": []}


def test_one_tool_can_be_called() -> None:
    file = tool_server(tools="[]")
    called = temper("tools", "call", "fake.echo", '{"text": "hi"}', "--config", file)
    assert (called.exit_code, called.stdout) == (0, "hi\n")
    failed = temper("tools", "call", "fake.fail", "--config", file, "--json")
    assert failed.exit_code == 1
    assert document(failed) == {"ok": False, "result": "Error: it is broken"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fake.gone",), "has no tool 'gone'; there are: echo, hang"),
        (("other.echo",), "there is no tool server 'other'; there are: fake"),
        (("fake.echo", "{"), "not valid JSON"),
    ],
)
def test_a_call_that_cannot_be_made_says_why(arguments: tuple[str, ...], words: str) -> None:
    result = temper("tools", "call", *arguments, "--config", tool_server())
    assert result.exit_code == 1
    assert words in result.stderr
