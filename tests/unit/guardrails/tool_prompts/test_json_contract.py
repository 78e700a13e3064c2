from hypothesis import given

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.conversation.replies import TextDelta
from proxy.conversation.tools import ToolCall, WrittenCall
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.reading import ReadReply, ReplyReader
from proxy.guardrails.rescue.findings import FoundCalls, Prose
from proxy.guardrails.rescue.registry import order_syntaxes
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reason
from proxy.guardrails.respond import make_respond_tool
from proxy.guardrails.tool_prompts.json_contract import JsonContractConvention, json_contract
from tests.fakes.arrivals import chunkings, read_syntax, scan
from tests.fakes.playbook import CLOCK, WEATHER
from tests.unit.guardrails.tool_prompts.retelling import (
    RESPOND,
    SEND,
    WAIT,
    read_again,
    texts,
    write_and_read,
)

CONTRACT = JsonContractConvention()
TOOLS = """Tools, one a line:
{"type":"function","function":{"name":"send","description":"send","parameters":\
{"type":"object","properties":{"to":{"type":"string"}}}}}
{"type": "function",
 "function": {"name": "wait"}}

"""
CALL = '{"type": "tool_call", "name": "TOOL", "arguments": {"PARAMETER": "VALUE"}}\n'
RESULTS = 'You get the results as objects of the type "tool_result".'


def test_the_prompt_describes_the_final_answer_as_json_if_the_tool_respond_is_offered() -> None:
    assert CONTRACT.describe([SEND, WAIT], RESPOND) == (
        TOOLS + "Always reply with JSON and nothing else. "
        f"To call a tool, one object a line for several calls:\n{CALL}"
        'To answer the user:\n{"type": "final", "content": "YOUR COMPLETE ANSWER"}\n' + RESULTS
    )


def test_the_prompt_describes_only_calls_if_the_tool_respond_is_not_offered() -> None:
    assert CONTRACT.describe([SEND, WAIT], None) == (
        TOOLS + "To call a tool, reply with JSON and nothing else, "
        f"one object a line for several calls:\n{CALL}" + RESULTS
    )


def test_text_before_calls_is_written_as_the_content_of_the_first_call() -> None:
    calls = [ToolCall("a", "send", '{"to": "x"}'), ToolCall("b", "wait", "{}")]
    text = CONTRACT.write_calls('"Now"', calls)
    assert text == (
        '{"type": "tool_call", "content": "\\"Now\\"", "name": "send", "arguments": {"to": "x"}}\n'
        '{"type": "tool_call", "name": "wait", "arguments": {}}'
    )
    assert read_again(CONTRACT, text, ["send", "wait"], "respond") == [
        WrittenCall("respond", {"message": '"Now"'}),
        WrittenCall("send", {"to": "x"}),
        WrittenCall("wait", {}),
    ]


@given(name=texts, text=texts)
def test_any_result_is_written_as_a_single_json_object(name: str, text: str) -> None:
    result = json.parse(CONTRACT.write_result(name, "a", text))
    assert isinstance(result, dict)
    assert (result["type"], result["name"]) == ("tool_result", name)
    assert result["content"] in (text, parsed(text))


def parsed(text: str) -> JsonValue:
    try:
        return json.parse(text)
    except ValueError:
        return text


def test_a_call_of_a_tool_that_is_not_offered_is_read() -> None:
    text = CONTRACT.write_calls("", [ToolCall("a", "send", "{}")])
    assert read_again(CONTRACT, text, ["wait"]) == [WrittenCall("send", {})]
    assert write_and_read(CONTRACT, ToolCall("a", "respond", "{}")) == [WrittenCall("respond", {})]


READ_CONTRACT = json_contract("respond")
LOOK = '{"type": "tool_call", "name": "look", "arguments": {"at": "}"}}'
FINAL = '{"type": "final", "content": "It is \\"here\\"."}'
READ_CALL = WrittenCall("look", {"at": "}"})
ANSWER = WrittenCall("respond", {"message": 'It is "here".'})
OFFER = OfferedTools(
    (WEATHER, CLOCK),
    TextPolicy.RESPOND,
    (READ_CONTRACT, *order_syntaxes(("bare_json",))),
    make_respond_tool(()),
)


def read_reply(text: str, offer: OfferedTools = OFFER, reason: str = "stop") -> ReadReply:
    replies = []
    for pieces in chunkings(text):
        reader = ReplyReader(offer)
        for piece in pieces:
            reader.read(TextDelta(piece))
        replies.append(reader.finish(reason)[1])
    assert all(reply == replies[0] for reply in replies)
    return replies[0]


def test_a_final_answer_is_not_a_call_if_the_tool_respond_is_not_offered() -> None:
    contract = json_contract()
    assert read_syntax(contract, FINAL) == (NoCall(Reason.NOT_A_CALL), '"It is \\"here\\"."}')
    text = LOOK.replace('"name"', '"content": "So", "name"')
    assert read_syntax(contract, text) == (Calls((READ_CALL,)), "")


def test_a_call_is_read_only_at_the_start_of_a_reply() -> None:
    assert scan([f" {LOOK}"], (READ_CONTRACT,)) == [
        FoundCalls(READ_CONTRACT.name, (READ_CALL,), LOOK, True, True)
    ]
    text = f"I call: {LOOK}"
    assert scan([text], (READ_CONTRACT,)) == [Prose(text)]


def test_json_contracts_with_the_same_answer_tool_are_equal_and_have_equal_hashes() -> None:
    assert json_contract("respond") == READ_CONTRACT
    assert hash(json_contract("respond")) == hash(READ_CONTRACT)
    assert json_contract() != READ_CONTRACT


def test_the_content_of_a_final_object_is_the_answer() -> None:
    reply = read_reply(FINAL)
    assert (reply.text, reply.has_responded, reply.calls) == ('It is "here".', True, ())


def test_text_in_the_member_content_of_a_call_is_returned_with_the_call() -> None:
    text = LOOK.replace('"name"', '"content": "So", "name"')
    reply = read_reply(text)
    assert (reply.text, reply.calls) == ("So", (READ_CALL,))


def test_a_truncated_call_is_not_shown() -> None:
    reply = read_reply(LOOK[:-4], reason="length")
    assert (reply.text, reply.calls, reply.is_cut_off) == ("", (), True)


def test_a_json_object_without_the_member_type_is_an_answer() -> None:
    text = '{"answer": 1}'
    assert read_reply(text).text == text
    assert not read_reply(text).is_broken


def test_a_call_in_plain_json_is_read_by_the_next_syntax() -> None:
    reply = read_reply('{"name": "get_time", "arguments": {}}')
    assert reply.calls == (WrittenCall("get_time", {}),)
