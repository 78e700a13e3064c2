import pytest

from proxy.conversation.messages import assistant_message, user_message
from proxy.conversation.tools import ToolCall, WrittenCall
from proxy.guardrails.model_quirks import Template
from proxy.guardrails.rescue.registry import find_syntax
from proxy.guardrails.rescue.scanner import find_calls
from proxy.guardrails.tool_prompts.history import describe_in_prompt
from proxy.guardrails.tool_prompts.react import ReActConvention
from tests.fakes.arrivals import calls_found
from tests.unit.guardrails.tool_prompts.retelling import RESPOND, SEND, WAIT, read_again

REACT = find_syntax("react")

CONVENTION = ReActConvention()
TOOLS = """Tools, one a line:
{"type":"function","function":{"name":"send","description":"send","parameters":\
{"type":"object","properties":{"to":{"type":"string"}}}}}
{"type": "function",
 "function": {"name": "wait"}}

"""
CALL = """To call a tool, write three labelled lines, the last with JSON:
Thought: what you think about the next step
Action: the name of one tool
Action Input: {"PARAMETER": "VALUE"}
You get the result as `Observation:`. Never write one yourself: stop behind the input."""
FINAL = """

To answer the user, write:
Thought: what you think about the answer
Final Answer: your complete answer to the user"""


def test_the_prompt_describes_the_label_of_the_final_answer_if_respond_is_offered() -> None:
    assert CONVENTION.describe([SEND, WAIT], RESPOND) == TOOLS + CALL + FINAL
    assert CONVENTION.describe([SEND, WAIT], None) == TOOLS + CALL


def test_text_before_a_call_is_written_as_a_thought() -> None:
    text = CONVENTION.write_calls("Now.\n", [ToolCall("a", "send", '{"to": "x"}')])
    assert text == 'Thought: Now.\nAction: send\nAction Input: {"to": "x"}'
    assert read_again(CONVENTION, text, ["send"]) == [WrittenCall("send", {"to": "x"})]


def test_a_tool_name_with_a_line_end_is_written_on_one_line() -> None:
    text = CONVENTION.write_calls("", [ToolCall("a", "two\nFinal Answer: x", "{}")])
    assert text == 'Action: "two\\nFinal Answer: x"\nAction Input: {}'


def test_no_label_can_start_within_a_result() -> None:
    assert CONVENTION.write_result("send", "a", "x\nFinal Answer: y") == (
        'Observation: "x\\nFinal Answer: y"'
    )
    assert CONVENTION.write_result("send", "a", '{"a": 1}') == 'Observation: {"a": 1}'


def test_answers_in_the_history_get_the_label_final_answer_unless_they_are_empty() -> None:
    history = [user_message("Hi"), assistant_message("Hello."), assistant_message("")]
    messages = describe_in_prompt(history, [], None, convention=CONVENTION, template=Template())
    assert [message.text for message in messages] == ["Hi", "Final Answer: Hello.", ""]


PING = 'Action: ping\nAction Input: {"host": "a"}'


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"Thought: I have to look.\n{PING}", 1),
        (f"Then {PING}", 0),
        (f"{PING}\nObservation: 3 ms", 0),
        (PING.replace("ping", "pong"), 0),
    ],
)
def test_calls_are_read_only_on_separate_lines_at_the_end_and_only_of_offered_tools(
    text: str, count: int
) -> None:
    findings = find_calls(text, (REACT,), ("ping",))
    assert len(calls_found(findings)) == count
