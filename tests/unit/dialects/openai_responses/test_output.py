from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    ReplyEvent,
    RoundMessages,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolCall
from proxy.dialects.foreign_history import sign
from proxy.dialects.openai_responses.client_tools import Origin, ToolKind
from proxy.dialects.openai_responses.output import (
    Event,
    OpenCall,
    OpenItem,
    OpenReasoning,
    OpenText,
    OutputItems,
)
from proxy.dialects.openai_responses.response import AnswerTerms
from tests.fakes.responses import make_token, member


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
    item = OpenCall("fc_1", Origin(ToolKind.FUNCTION, "f", "n"), "c")
    events = written(item, "", '{"a"', ": 1}")
    assert events == [
        ("response.function_call_arguments.delta", {"delta": '{"a"'}),
        ("response.function_call_arguments.delta", {"delta": ": 1}"}),
        ("response.function_call_arguments.done", {"name": "f", "arguments": '{"a": 1}'}),
    ]
    assert item.item("completed")["namespace"] == "n"


def test_the_input_of_a_custom_tool_is_shown_when_it_is_whole() -> None:
    item = OpenCall("ctc_1", Origin(ToolKind.CUSTOM, "run"), "c")
    assert written(item, '{"input": "a', 'b"}') == [
        ("response.custom_tool_call_input.delta", {"delta": "ab"}),
        ("response.custom_tool_call_input.done", {"input": "ab"}),
    ]
    empty = OpenCall("ctc_2", Origin(ToolKind.CUSTOM, "run"), "c")
    assert written(empty, '{"input": ""}') == [
        ("response.custom_tool_call_input.done", {"input": ""})
    ]


def test_other_calls_are_told_as_a_whole_only() -> None:
    item = OpenCall("sh_1", Origin(ToolKind.SHELL, "shell"), "c")
    assert written(item, '{"commands": ["ls"]}') == []
    assert item.item("completed")["type"] == "shell_call"


def make() -> OutputItems:
    return OutputItems(AnswerTerms({}, {}), make_token())


def taken(output: OutputItems, *events: ReplyEvent) -> list[Event]:
    return [event for one in events for event in output.take(one)]


def told(events: list[Event]) -> list[tuple[str, JsonValue]]:
    """Return the news about items: which were added and which are done, by their types."""
    return [
        (kind.rpartition(".")[2], member(members["item"], "type"))
        for kind, members in events
        if "output_item" in kind
    ]


def items(output: OutputItems) -> list[JsonValue]:
    return [json.parse(item) for item in output.done]


START, BEGINNING, REST = (
    ToolCallStarted(0, "c", "f"),
    ToolCallArgumentsDelta(0, '{"a"'),
    ToolCallArgumentsDelta(0, ": 1}"),
)


def test_another_kind_of_thing_ends_the_item_before_and_begins_its_own() -> None:
    output = make()
    events = taken(
        output,
        ReasoningDelta("a"),
        ReasoningDelta("b"),
        TextDelta("c"),
        TextDelta("d"),
        ReasoningDelta("e"),
        ToolCalled(0, ToolCall("c", "f", "{}")),
        TextDelta("g"),
    )
    events += output.finish("completed")
    kinds = ["reasoning", "message", "reasoning", "function_call", "message"]
    assert told(events) == [(what, kind) for kind in kinds for what in ("added", "done")]
    assert [member(item, "type") for item in items(output)] == kinds
    assert member(items(output)[3], "call_id") == "c"


def test_what_says_nothing_begins_nothing() -> None:
    silent = (TextDelta(""), ReasoningDelta(""), PromptProgress(1, 0, 1), BEGINNING)
    assert taken(make(), *silent) == []


def test_a_call_without_an_id_gets_one() -> None:
    output = make()
    taken(output, ToolCallStarted(0, None, "f"), ToolCallArgumentsDelta(0, "{}"))
    output.finish("completed")
    assert f"{member(items(output)[0], 'call_id')}".startswith("call_")


def test_what_comes_while_a_call_is_half_written_waits_for_its_end() -> None:
    output = make()
    events = taken(
        output,
        START,
        BEGINNING,
        ReasoningDelta("Hm."),
        ToolCallStarted(1, "d", "g"),
        ToolCallStarted(2, "e", "h"),
        ToolCallArgumentsDelta(1, '{"b"'),
        ToolCallArgumentsDelta(2, "{}"),
        REST,
        ToolCallArgumentsDelta(1, ": 2}"),
    )
    assert told(events) == [("added", "function_call")]
    events += output.finish("completed")
    assert [kind for what, kind in told(events) if what == "done"] == [
        "function_call",
        "reasoning",
        "function_call",
        "function_call",
    ]
    arguments = [
        item["arguments"]
        for item in items(output)
        if isinstance(item, dict) and "arguments" in item
    ]
    assert arguments == ['{"a": 1}', '{"b": 2}', "{}"]


def test_a_call_that_was_cut_off_is_never_done() -> None:
    output = make()
    events = taken(output, TextDelta("a"), START, BEGINNING, ToolCallStarted(1, "d", "g"))
    events += output.finish("incomplete")
    assert told(events) == [("added", "message"), ("done", "message"), ("added", "function_call")]
    assert [member(item, "status") for item in items(output)] == ["completed"]


def test_a_call_that_is_whole_when_the_answer_is_cut_off_is_done() -> None:
    output = make()
    taken(output, START, BEGINNING, REST)
    output.finish("incomplete")
    assert member(items(output)[0], "status") == "completed"


def test_a_text_that_was_cut_off_says_so() -> None:
    output = make()
    taken(output, TextDelta("a"))
    output.finish("incomplete")
    assert member(items(output)[0], "status") == "incomplete"


def test_without_guardrails_a_broken_call_is_passed_on_as_the_model_wrote_it() -> None:
    output = make()
    taken(output, START, BEGINNING)
    output.finish("completed")
    assert member(items(output)[0], "arguments") == '{"a"'


def test_arguments_of_a_call_that_is_done_are_too_late() -> None:
    output = make()
    taken(output, ToolCalled(0, ToolCall("c", "f", "{}")), ToolCalled(1, ToolCall("d", "g", "{}")))
    assert taken(output, ToolCallArgumentsDelta(0, " ")) == []


def test_an_answer_may_be_empty() -> None:
    output = make()
    assert output.finish("completed") == []
    assert output.done == []


def test_calls_that_ran_here_are_items_behind_what_was_said_before_them() -> None:
    calls: list[JsonValue] = [
        {"id": f"c{n}", "function": {"name": name, "arguments": '{"a":1}'}}
        for n, name in enumerate(("time", "mine", "lost", "failed"))
    ]
    told = RoundMessages(
        (
            {"role": "assistant", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c0", "content": "noon", "failed": False},
            {"role": "tool", "tool_call_id": "c1", "content": "not run yet"},
            {"role": "tool", "tool_call_id": "c3", "content": "Error: no", "failed": True},
        ),
        {"time": "clock", "failed": "clock", "lost": "clock"},
    )
    items = OutputItems(AnswerTerms({}, {}), make_token())
    assert items.take(ReasoningDelta("Hm."))
    events = items.take(told)
    assert names(events)[-5:] == [
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.done",
        "mcp_call.failed",
        "output_item.done",
    ]
    done = [json.parse(item) for item in items.done]
    assert [member(one, "type") for one in done] == ["reasoning", *["mcp_call"] * 3]
    assert [member(one, "output") for one in done[1:]] == ["noon", None, None]
    assert [member(one, "error") for one in done[1:]] == [None, None, "Error: no"]
    assert member(done[1], "id") == "mcp_c0"
    assert items.take(TextDelta("It is noon."))
