from typing import Literal

import httpx
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage

from proxy.agents.foreign import GuardedTurn, Guardrails, SdkRequests, is_over, plain
from proxy.context.tokens import TokenBook
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.workflows import Workflow
from proxy.errors import (
    BackendRefused,
    BackendReplyInvalid,
    BackendUnavailable,
    ContextOverflow,
    GuardrailsExhausted,
    InvalidRequest,
)
from proxy.facts import Compacted, ReplyOutcome
from proxy.tools.function import tool
from proxy.tools.toolset import Toolset

PARIS = '{"city":"Paris"}'
LEAKED = f'<tool_call>{{"name":"get_weather","arguments":{PARIS}}}</tool_call>'
UNKNOWN = '<tool_call>{"name":"launch","arguments":{}}</tool_call>'
ASKED: list[JsonObject] = [{"role": "user", "content": "How is the weather in Paris?"}]


def get_weather(city: str) -> str:
    """Report the weather."""
    return f"sunny in {city}"


def completion(text: str | None, *calls: tuple[str, str], reason: str = "stop") -> JsonObject:
    """Return the response to a request that is not streamed."""
    message: JsonObject = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in calls
        ]
    choice: JsonObject = {"index": 0, "message": message, "finish_reason": reason}
    return {
        "id": "i",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": {"prompt_tokens": 20, "completion_tokens": 2, "total_tokens": 22},
    }


def chunk(text: str, reason: str | None = None) -> JsonObject:
    """Return a chunk of a streamed response with this text."""
    choice: JsonObject = {"index": 0, "delta": {"content": text}, "finish_reason": reason}
    return {
        "id": "i",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }


def request_of(turn: GuardedTurn) -> JsonObject:
    request = turn.next_request()
    assert request is not None
    return request


def begin_turn(guard: Guardrails) -> GuardedTurn:
    """Begin a turn and create its first request."""
    turn = guard.turn(ASKED)
    request_of(turn)
    return turn


def test_a_call_written_as_text_becomes_a_call_of_the_answer() -> None:
    turn = begin_turn(Guardrails(tools=[get_weather]))
    turn.receive(completion(LEAKED))
    answer = turn.answer

    assert turn.next_request() is None
    assert answer.text == ""
    assert [(call.name, call.arguments) for call in answer.calls] == [("get_weather", PARIS)]
    assert answer.outcome is ReplyOutcome.REPAIRED
    assert answer.finish_reason == "tool_calls"
    call: JsonObject = {
        "id": answer.calls[0].id,
        "type": "function",
        "function": {"name": "get_weather", "arguments": PARIS},
    }
    assert answer.message == {"role": "assistant", "content": "", "tool_calls": [call]}


def test_reasoning_is_reported_and_stored_in_the_message() -> None:
    reply = completion("Four.")
    reply["choices"] = [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Four.", "reasoning_content": "2+2"},
            "finish_reason": "stop",
        }
    ]
    turn = begin_turn(Guardrails())

    assert turn.receive(reply) == [{"reasoning_content": "2+2"}, {"content": "Four."}]
    assert (turn.answer.text, turn.answer.reasoning) == ("Four.", "2+2")
    assert turn.answer.message["reasoning_content"] == "2+2"
    assert turn.answer.outcome is ReplyOutcome.CLEAN


def test_messages_and_replies_of_the_openai_sdk_are_accepted() -> None:
    guard = Guardrails(tools=[get_weather])
    message = ChatCompletionMessage(role="assistant", content="Hello.")
    turn = guard.turn([*ASKED, message, *ASKED])
    messages = request_of(turn)["messages"]
    turn.receive(ChatCompletion.model_validate(completion("", ("get_weather", PARIS))))

    assert messages == [*ASKED, {"role": "assistant", "content": "Hello."}, *ASKED]
    assert turn.answer.calls[0].id == "c"
    streamed = guard.turn(ASKED, stream=True)
    request_of(streamed)
    deltas = [
        delta
        for sent in (chunk("It is "), chunk("sunny.", "stop"))
        for delta in streamed.receive(ChatCompletionChunk.model_validate(sent))
    ]
    assert len(deltas) == 2
    assert "".join(str(delta["content"]) for delta in deltas) == "It is sunny."
    assert streamed.answer.text == "It is sunny."


def test_a_reply_that_is_a_string_raises_type_error() -> None:
    turn = begin_turn(Guardrails())

    with pytest.raises(TypeError, match="not str"):
        turn.receive("Hello.")


def test_after_a_call_of_an_unknown_tool_the_next_request_has_a_nudge() -> None:
    messages = [*ASKED]
    turn = Guardrails(tools=[get_weather]).turn(messages)
    first = request_of(turn)
    assert turn.receive(completion(UNKNOWN)) == []
    second = request_of(turn)
    turn.receive(completion(LEAKED))

    assert messages == ASKED
    assert first["messages"] == ASKED
    history = second["messages"]
    assert isinstance(history, list)
    assert history[:1] == ASKED
    assert len(history) > 1
    assert first["tools"] == second["tools"]
    assert turn.answer.outcome is ReplyOutcome.RETRIED


def test_the_last_attempt_is_constrained_with_the_fields_of_the_engine() -> None:
    constraints: dict[str, JsonObject] = {}
    engines: tuple[Literal["openai", "llama-server"], ...] = ("openai", "llama-server")
    for engine in engines:
        guard = Guardrails(tools=[get_weather], engine=engine)
        turn = guard.turn(ASKED)
        for reply in (UNKNOWN, UNKNOWN, f'{{"name":"get_weather","arguments":{PARIS}}}'):
            constraints[engine] = request_of(turn)
            turn.receive(completion(reply))
        assert turn.answer.calls[0].arguments == PARIS

    assert constraints["openai"]["tool_choice"] == "required"
    assert constraints["llama-server"]["tool_choice"] == "none"
    form = constraints["llama-server"]["response_format"]
    assert isinstance(form, dict)
    assert form["type"] == "json_schema"
    assert {"stream", "model", "return_progress"}.isdisjoint(constraints["llama-server"])


def test_response_format_and_parameters_are_fields_of_the_request() -> None:
    form: JsonObject = {
        "type": "json_schema",
        "json_schema": {"name": "f", "schema": {"type": "object", "required": ["n"]}},
    }
    turn = Guardrails().turn(ASKED, response_format=form, parameters={"max_tokens": 9})
    request = request_of(turn)
    turn.receive(completion('{"n":1}'))

    assert request == {"max_tokens": 9, "messages": ASKED, "response_format": form}
    assert turn.answer.text == '{"n":1}'


def test_a_reply_without_a_call_is_retried_if_the_tool_choice_names_a_tool() -> None:
    choice: JsonObject = {"type": "function", "function": {"name": "get_weather"}}
    turn = Guardrails(tools=[get_weather]).turn(ASKED, tool_choice=choice)

    assert request_of(turn)["tool_choice"] == choice
    turn.receive(completion("It is sunny."))
    assert turn.next_request() is not None


def test_tools_may_be_functions_or_dictionaries_or_a_toolset() -> None:
    @tool(aliases=("clock",))
    def get_time() -> None:
        """Return the time."""

    entry: JsonObject = {"type": "function", "function": {"name": "roll", "parameters": None}}
    for tools in ([get_time, entry, get_weather], Toolset([get_time, get_weather])):
        turn = begin_turn(Guardrails(tools=tools))  # type: ignore[arg-type]
        turn.receive(completion("", ("clock", "{}")))
        assert turn.answer.calls[0].name == "get_time"


def test_invalid_tools_and_a_workflow_with_an_unknown_tool_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="tools"):
        Guardrails(tools=[{"type": "function"}])
    with pytest.raises(ValueError, match=r"workflow.required_steps.0: unknown tool 'a'"):
        Guardrails(tools=[get_weather], workflow=Workflow(required_steps=("a",)))


def test_a_terminal_tool_before_a_required_step_is_retried() -> None:
    def report() -> None:
        """Report the value."""

    rules = Workflow(("get_weather",), terminal_tools=("report",))
    turn = begin_turn(Guardrails(tools=[get_weather, report], workflow=rules))
    turn.receive(completion("", ("report", "{}")))
    assert turn.next_request() is not None
    turn.receive(completion("", ("get_weather", PARIS)))

    assert turn.answer.calls[0].name == "get_weather"


def test_tools_are_described_in_the_prompt_of_a_model_without_a_template_for_tools() -> None:
    guard = Guardrails(tools=[get_weather], model="gemma-3-12b-it")
    request = request_of(guard.turn(ASKED))

    assert "tools" not in request
    assert "get_weather" in json.dump_text(request["messages"])


def step(number: int) -> list[JsonObject]:
    """Return the messages of a call and its long result."""
    function: JsonObject = {"name": "get_weather", "arguments": PARIS}
    call: JsonObject = {"id": f"c{number}", "type": "function", "function": function}
    result = f"{number} sunny " * 100
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result},
    ]


LONG = [message for number in range(12) for message in step(number)]


def test_a_long_history_is_shortened_to_fit_the_window() -> None:
    guard = Guardrails(tools=[get_weather], window=4096)
    messages = [*ASKED, *LONG]
    turn = guard.turn(messages)
    request = request_of(turn)
    turn.receive(completion("It is sunny."))
    (compacted,) = (fact for fact in turn.answer.facts if isinstance(fact, Compacted))

    assert messages == [*ASKED, *LONG]
    assert len(json.dump(request["messages"])) < len(json.dump([*messages]))
    assert compacted.sent < compacted.client
    with pytest.raises(ContextOverflow):
        Guardrails(window=1024).turn([{"role": "user", "content": "so long " * 5000}])


def test_the_usage_of_a_reply_replaces_the_estimated_size_of_the_prompt() -> None:
    guard = Guardrails(window=100_000)
    sizes: list[int] = []
    for _ in range(2):
        turn = guard.turn([{"role": "user", "content": "word " * 5000}])
        request_of(turn)
        reply = completion("Yes.")
        turn.receive({**reply, "usage": {"prompt_tokens": 40_000}})
        sizes += [fact.sent for fact in turn.answer.facts if isinstance(fact, Compacted)]

    assert sizes[1] == 40_000 != sizes[0]


def test_the_next_max_tokens_uses_the_usage_that_arrives_after_the_finish_reason() -> None:
    guard = Guardrails(tools=[get_weather], engine="llama-server")
    turn = guard.turn(ASKED, stream=True)
    for _ in range(2):
        request_of(turn)
        turn.receive(chunk(UNKNOWN, "stop"))
        assert turn.receive({"choices": [], "usage": {"completion_tokens": 1000}}) == []
    constrained = request_of(turn)
    turn.receive(chunk(f'{{"name":"get_weather","arguments":{PARIS}}}', "stop"))
    assert turn.receive({"choices": [], "usage": {"completion_tokens": 9}}) == []

    assert constrained["max_tokens"] == 2000
    assert turn.answer.calls[0].arguments == PARIS


def test_calling_receive_or_answer_before_the_first_request_raises_runtime_error() -> None:
    turn = Guardrails().turn(ASKED)
    with pytest.raises(RuntimeError, match="next_request"):
        turn.receive(completion("Hello."))
    request_of(turn)
    with pytest.raises(RuntimeError, match="no answer yet"):
        _ = turn.answer


def test_the_methods_fail_and_next_request_raise_a_failure_before_any_content() -> None:
    turn = begin_turn(Guardrails())
    error = ConnectionError("no route")

    with pytest.raises(ConnectionError, match="no route"):
        turn.fail(error)
    with pytest.raises(ConnectionError, match="no route"):
        turn.next_request()
    with pytest.raises(RuntimeError, match="no answer"):
        _ = turn.answer


def test_a_failed_retry_falls_back_to_the_earlier_attempt() -> None:
    turn = begin_turn(Guardrails(tools=[get_weather], text_policy="respond"))
    assert turn.receive(completion("It is sunny.")) == []
    assert turn.next_request() is not None

    assert turn.fail(ConnectionError()) == [{"content": "It is sunny."}]
    assert turn.answer.text == "It is sunny."
    assert turn.next_request() is None


def test_calling_next_request_raises_an_error_if_a_stream_ended_early() -> None:
    turn = begin_turn(Guardrails())
    turn.receive(chunk("It is"))

    with pytest.raises(BackendUnavailable, match="ended in the middle"):
        turn.next_request()


def test_the_method_receive_raises_an_error_that_a_stream_contains() -> None:
    turn = begin_turn(Guardrails())
    turn.receive(chunk("It is"))

    with pytest.raises(BackendRefused, match="out of memory"):
        turn.receive({"error": {"message": "out of memory", "code": 500}})


def test_the_method_receive_raises_an_error_for_an_invalid_reply() -> None:
    turn = begin_turn(Guardrails())

    with pytest.raises(BackendReplyInvalid, match="an invalid reply"):
        turn.receive({"choices": 7})


def test_a_strict_turn_raises_after_its_last_attempt() -> None:
    turn = Guardrails(tools=[get_weather], strict=True, attempts=2).turn(ASKED)
    request_of(turn)
    turn.receive(completion(UNKNOWN))
    request_of(turn)

    with pytest.raises(GuardrailsExhausted):
        turn.receive(completion(UNKNOWN))
    with pytest.raises(GuardrailsExhausted):
        turn.next_request()


def test_a_reply_that_llama_server_could_not_parse_is_retried() -> None:
    wording = "The model produced output that does not match the expected peg-native format"
    response = httpx.Response(500, json={"error": {"code": 500, "message": wording}})
    error = httpx.HTTPStatusError(
        "500", request=httpx.Request("POST", "http://b"), response=response
    )
    turn = begin_turn(Guardrails(tools=[get_weather], engine="llama-server"))

    assert turn.fail(error) == []
    assert request_of(turn)["tool_choice"] == "none"
    turn.receive(completion(LEAKED))
    assert turn.answer.calls[0].arguments == PARIS


UNPARSED = "Failed to parse input at pos 12: <tool_call>"


def requests(engine: str, window: int | None = None) -> SdkRequests:
    return SdkRequests(engine, window, TokenBook())


class SdkError(Exception):
    """An error like those of SDKs, which contain the HTTP response."""

    def __init__(self, status: int, message: str) -> None:
        self.response = httpx.Response(status, json={"error": {"code": status, "message": message}})
        super().__init__("failed")


def test_an_sdk_message_is_written_without_its_unset_fields() -> None:
    message = ChatCompletionMessage(role="assistant", content="Hello.")

    assert plain(message) == {"role": "assistant", "content": "Hello."}
    assert plain({"a": None}) == {"a": None}
    with pytest.raises(TypeError, match="not NoneType"):
        plain(None)


@pytest.mark.parametrize(
    ("choice", "is_whole"),
    [
        ({"choices": [{"message": {"content": "a"}}]}, True),
        ({"choices": [{"delta": {}, "finish_reason": "stop"}]}, True),
        ({"choices": [{"delta": {"content": "a"}, "finish_reason": None}]}, False),
        ({"choices": []}, False),
        ({"choices": [7]}, False),
        ({"usage": {}}, False),
    ],
)
def test_a_reply_ends_with_a_message_or_a_finish_reason(choice: JsonObject, is_whole: bool) -> None:
    assert is_over(choice) is is_whole


def test_only_parse_errors_of_llama_server_count_as_unreadable() -> None:
    assert requests("llama-server").is_unreadable(SdkError(500, UNPARSED))
    assert not requests("llama-server").is_unreadable(SdkError(500, "out of memory"))
    assert not requests("llama-server").is_unreadable(SdkError(400, UNPARSED))
    assert not requests("llama-server").is_unreadable(ConnectionError(UNPARSED))
    assert not requests("openai").is_unreadable(SdkError(500, UNPARSED))


def test_a_turn_ends_after_the_number_of_attempts_that_the_program_sets() -> None:
    turn = Guardrails(tools=[get_weather], strict=True, attempts=5).turn(ASKED)
    for attempt in range(1, 6):
        request_of(turn)
        if attempt == 5:
            with pytest.raises(GuardrailsExhausted, match="after 5 attempts"):
                turn.receive(completion(UNKNOWN))
        else:
            assert turn.receive(completion(UNKNOWN)) == []
    with pytest.raises(ValueError, match="attempts must be at least 1"):
        Guardrails(tools=[get_weather], attempts=0)
