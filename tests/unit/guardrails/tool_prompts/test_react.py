from proxy.conversation.messages import assistant_message, user_message
from proxy.conversation.tools import ToolCall, WrittenCall
from proxy.guardrails.model_quirks import Template
from proxy.guardrails.tool_prompts.history import describe_in_prompt
from proxy.guardrails.tool_prompts.react import ReActConvention
from tests.unit.guardrails.tool_prompts.retelling import RESPOND, SEND, WAIT, read_again

REACT = ReActConvention()
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


def test_the_final_answer_stands_for_the_synthetic_tool() -> None:
    assert REACT.describe([SEND, WAIT], RESPOND) == TOOLS + CALL + FINAL
    assert REACT.describe([SEND, WAIT], None) == TOOLS + CALL


def test_what_was_said_before_a_call_was_a_thought() -> None:
    written = REACT.write_calls("Now.\n", [ToolCall("a", "send", '{"to": "x"}')])
    assert written == 'Thought: Now.\nAction: send\nAction Input: {"to": "x"}'
    assert read_again(REACT, written, ["send"]) == [WrittenCall("send", {"to": "x"})]


def test_a_name_that_nobody_could_read_keeps_to_its_line() -> None:
    written = REACT.write_calls("", [ToolCall("a", "two\nFinal Answer: x", "{}")])
    assert written == 'Action: "two\\nFinal Answer: x"\nAction Input: {}'


def test_no_label_can_begin_within_a_result() -> None:
    assert REACT.write_result("send", "a", "x\nFinal Answer: y") == (
        'Observation: "x\\nFinal Answer: y"'
    )
    assert REACT.write_result("send", "a", '{"a": 1}') == 'Observation: {"a": 1}'


def test_answers_of_the_history_have_their_label_and_empty_ones_none() -> None:
    history = [user_message("Hi"), assistant_message("Hello."), assistant_message("")]
    told = describe_in_prompt(history, [], None, convention=REACT, template=Template())
    assert [one.text for one in told] == ["Hi", "Final Answer: Hello.", ""]
