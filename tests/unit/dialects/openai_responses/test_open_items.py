from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.foreign_history import sign
from proxy.dialects.openai_responses.calls import Kind, Origin
from proxy.dialects.openai_responses.open_items import (
    Event,
    OpenCall,
    OpenItem,
    OpenReasoning,
    OpenText,
)


def names(events: list[Event]) -> list[str]:
    return [kind.removeprefix("response.") for kind, _ in events]


def written(item: OpenItem, *texts: str) -> list[Event]:
    events = item.begin()
    for text in texts:
        events += item.add(text)
    return events + item.end()


def test_a_message_has_one_part() -> None:
    item = OpenText("msg_1")
    assert item.item("in_progress")["content"] == []
    assert names(written(item, "a", "b")) == [
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
    ]
    part: JsonObject = {"type": "output_text", "text": "ab", "annotations": [], "logprobs": []}
    assert item.item("completed") == {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }


def test_the_probabilities_of_tokens_are_passed_on_and_repeated() -> None:
    item = OpenText("msg_1")
    item.begin()
    tokens: list[JsonValue] = [{"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []}]
    ((_, members),) = item.add("a", {"content": tokens})
    assert members["logprobs"] == tokens
    odd_ones: list[JsonValue] = [None, {"content": None}, [1]]
    for odd in odd_ones:
        ((_, members),) = item.add("b", odd)
        assert members["logprobs"] == []
    assert item.end()[0][1]["logprobs"] == tokens


def test_thoughts_are_content_unless_a_summary_was_asked_for() -> None:
    item = OpenReasoning("rs_1", summarizes=False, signs=False)
    assert names(written(item, "a")) == [
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
    ]
    assert item.item("completed") == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "a"}],
        "status": "completed",
    }


def test_a_summary_has_events_of_its_own_and_thoughts_may_be_signed() -> None:
    item = OpenReasoning("rs_1", summarizes=True, signs=True)
    assert names(written(item, "a", "b")) == [
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    ]
    assert item.item("completed") == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "ab"}],
        "encrypted_content": sign("ab"),
        "status": "completed",
    }


def test_the_arguments_of_a_function_are_shown_while_they_are_written() -> None:
    item = OpenCall("fc_1", 0, Origin(Kind.FUNCTION, "f", "n"), "c")
    events = written(item, "", '{"a"', ": 1}")
    assert events == [
        ("response.function_call_arguments.delta", {"delta": '{"a"'}),
        ("response.function_call_arguments.delta", {"delta": ": 1}"}),
        ("response.function_call_arguments.done", {"name": "f", "arguments": '{"a": 1}'}),
    ]
    assert item.item("completed")["namespace"] == "n"


def test_the_input_of_a_custom_tool_is_shown_when_it_is_whole() -> None:
    item = OpenCall("ctc_1", 0, Origin(Kind.CUSTOM, "run"), "c")
    assert written(item, '{"input": "a', 'b"}') == [
        ("response.custom_tool_call_input.delta", {"delta": "ab"}),
        ("response.custom_tool_call_input.done", {"input": "ab"}),
    ]
    empty = OpenCall("ctc_2", 0, Origin(Kind.CUSTOM, "run"), "c")
    assert written(empty, '{"input": ""}') == [
        ("response.custom_tool_call_input.done", {"input": ""})
    ]


def test_other_calls_are_told_as_a_whole_only() -> None:
    item = OpenCall("sh_1", 0, Origin(Kind.SHELL, "shell"), "c")
    assert written(item, '{"commands": ["ls"]}') == []
    assert item.item("completed")["type"] == "shell_call"
