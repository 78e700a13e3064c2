import pytest

from proxy.conversation.json import JsonObject
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.findings import FoundCalls
from proxy.guardrails.rescue.registry import order_syntaxes
from proxy.guardrails.rescue.scanner import find_calls
from proxy.guardrails.rescue.unnamed import complete
from tests.fakes.arrivals import chunkings, scan
from tests.fakes.playbook import make_tool

TEXT: JsonObject = {"type": "string"}
RUN = make_tool(
    "run",
    {"type": "object", "properties": {"do": TEXT, "at": TEXT}, "required": ["do"]},
)
SAVE = make_tool(
    "save",
    {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "required": ["a", "b"]},
)
LOOK = make_tool("look", {"type": "object", "properties": {}})
TOOLS = (RUN, SAVE, LOOK)
PAIR = "<arg_key>at</arg_key><arg_value>5</arg_value>"


def calls_in(text: str) -> list[WrittenCall | None]:
    findings = find_calls(text, order_syntaxes(()), ("run", "save", "look"))
    for pieces in chunkings(text):
        scanned = scan(pieces, order_syntaxes(()), ("run", "save", "look"))
        assert [finding.calls for finding in scanned if isinstance(finding, FoundCalls)] == [
            finding.calls for finding in findings if isinstance(finding, FoundCalls)
        ]
    calls = [
        call for finding in findings if isinstance(finding, FoundCalls) for call in finding.calls
    ]
    return [complete(call, TOOLS) for call in calls]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("<tool_call>rundo</arg_key><arg_value>ls</arg_value></tool_call>", {"do": "ls"}),
        (f"<tool_call>rundo</arg_key><arg_value>ls</arg_value>{PAIR}</tool_call>", None),
        ("<tool_call>run\ndo</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>", {"do": "ls"}),
        ("<tool_call>run<arg_value>ls</arg_value></tool_call>", {"do": "ls"}),
        ("<tool_call>run<arg_key>do</arg_key>ls</arg_value></tool_call>", {"do": "ls"}),
        (f"<tool_call>run<arg_key>do</arg_key>ls</arg_value>{PAIR}</tool_call>", None),
        (f"<tool_call>run{PAIR}<arg_key>do</arg_key>ls</arg_value></tool_call>", None),
        ("<tool_call>\n<function=run>\nls\n</function>\n</tool_call>", {"do": "ls"}),
        ("<function=run>a\n  b</function>", {"do": "a\n  b"}),
        ('<invoke name="run">ls</invoke>', {"do": "ls"}),
    ],
)
def test_a_call_with_a_missing_parameter_tag_is_completed(
    text: str, arguments: JsonObject | None
) -> None:
    assert calls_in(text) == [WrittenCall("run", arguments or {"do": "ls", "at": "5"})]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>runby</arg_key><arg_value>ls</arg_value></tool_call>",
        "<function=save>ls</function>",
        "<function=look>ls</function>",
        "<function=none>ls</function>",
    ],
)
def test_a_call_is_not_completed_unless_exactly_one_parameter_is_possible(text: str) -> None:
    assert calls_in(text) == [None]


def test_a_call_name_with_two_possible_splits_is_not_completed() -> None:
    both = (RUN, make_tool("rund", {"type": "object", "properties": {"o": TEXT}}))
    assert complete(WrittenCall("rundo</arg_key>", {"": "ls"}), both) is None
    assert complete(WrittenCall("run", {"": "a", "do": "b"}), TOOLS) is None
    assert complete(WrittenCall("run", {"do": "b"}), TOOLS) == WrittenCall("run", {"do": "b"})
    anything = make_tool("any", {"type": "object", "required": ["a"]})
    assert complete(WrittenCall("any", {"": "a"}), (anything,)) is None
