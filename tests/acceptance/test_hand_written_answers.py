"""The hand-written model returns its scripts on a real llama-server."""

from collections.abc import Iterator

import httpx
import pytest

from proxy.conversation.json import JsonObject, JsonValue
from proxy.processes.process import RunningServer
from tests.fakes.scripts import SCRIPTS, SENTENCES, THOUGHTS, TOOLS, reply_to
from tests.timeouts import TIMEOUT_SECONDS

RAW: JsonObject = {"tools": list(TOOLS), "tool_choice": "none"}


@pytest.fixture
def client(llama_server: RunningServer) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {llama_server.api_key}"}
    with httpx.Client(
        base_url=llama_server.base_url, headers=headers, trust_env=False, timeout=TIMEOUT_SECONDS
    ) as client:
        yield client


def ask(client: httpx.Client, prompt: str, **fields: JsonValue) -> JsonObject:
    body: JsonObject = {"messages": [{"role": "user", "content": prompt}], **fields}
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    choice: JsonObject = response.json()["choices"][0]
    return choice


def text(choice: JsonObject) -> JsonValue:
    message = choice["message"]
    assert isinstance(message, dict)
    return message["content"]


@pytest.mark.parametrize("temperature", [0, 2])
@pytest.mark.parametrize(
    "trigger", [name for name in SCRIPTS if name not in ("[[forever]]", "default")]
)
def test_the_last_trigger_in_the_prompt_selects_the_reply_at_any_temperature(
    client: httpx.Client, trigger: str, temperature: int
) -> None:
    choice = ask(client, f"Not [[prose]] or [[call]]:{trigger}?", temperature=temperature, **RAW)
    expected = reply_to(trigger).split("</think>\n\n")[-1]
    assert text(choice) == expected
    assert choice["finish_reason"] == "stop"


def test_the_trigger_is_found_at_the_beginning_of_a_full_context(client: httpx.Client) -> None:
    assert text(ask(client, "[[four]]" + "x " * 3500)) == reply_to("[[four]]")
    assert text(ask(client, "[[prose]][[four]]" + "x " * 3500)) == reply_to("[[four]]")


def test_a_prompt_without_a_trigger_gets_the_default_reply(client: httpx.Client) -> None:
    assert text(ask(client, "Hello")) == reply_to("default")


def test_an_endless_script_continues_until_max_tokens(client: httpx.Client) -> None:
    choice = ask(client, "[[forever]]", max_tokens=50)
    assert text(choice) == "and so on" + " and on" * 49
    assert choice["finish_reason"] == "length"


def test_the_chunks_of_a_script_are_the_deltas_of_the_stream(client: httpx.Client) -> None:
    body: JsonObject = {
        "messages": [{"role": "user", "content": "[[respond]]"}],
        "stream": True,
        **RAW,
    }
    response = client.post("/v1/chat/completions", json=body)
    assert all(f'"content":"{sentence}"' in response.text for sentence in SENTENCES)


def test_the_server_parses_two_calls_in_the_format_of_the_template(client: httpx.Client) -> None:
    choice = ask(client, "[[two calls]]", tools=list(TOOLS))
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert isinstance(message, dict)
    calls = message["tool_calls"]
    assert isinstance(calls, list)
    assert len(calls) == 2


@pytest.mark.parametrize("trigger", ["[[no newline]]", "[[bad json]]", "[[violation]]"])
def test_the_server_returns_calls_in_another_format_as_text(
    client: httpx.Client, trigger: str
) -> None:
    assert text(ask(client, trigger, tools=list(TOOLS))) == reply_to(trigger)


def test_the_server_returns_reasoning_as_reasoning_content(client: httpx.Client) -> None:
    message = ask(client, "[[thinking]]")["message"]
    assert isinstance(message, dict)
    assert message["reasoning_content"] == THOUGHTS + "\n"
    assert message["content"] == "The answer is 4."


def test_a_json_script_is_returned_unchanged_under_a_schema(client: httpx.Client) -> None:
    function = TOOLS[0]["function"]
    assert isinstance(function, dict)
    schema: JsonObject = {
        "type": "object",
        "properties": {"name": {"const": "get_weather"}, "arguments": function["parameters"]},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    response_format: JsonObject = {
        "type": "json_schema",
        "json_schema": {"name": "call", "schema": schema},
    }
    prompt = "[[violation]] Reply with one JSON object only"
    choice = ask(client, prompt, response_format=response_format, **RAW)
    assert text(choice) == reply_to("Reply with one JSON object only")


def test_the_template_renders_tool_results(client: httpx.Client) -> None:
    function: JsonObject = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    messages: list[JsonValue] = [
        {"role": "user", "content": "[[call]]"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
    ]
    body: JsonObject = {"messages": messages, "tools": list(TOOLS)}
    rendered = client.post("/apply-template", json=body).json()["prompt"]
    assert (
        '<|im_start|>assistant\n<tool_call>\n{"name": "get_weather", "arguments": '
        '{"city": "Paris"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nsunny\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    ) in rendered
    answer = client.post("/v1/chat/completions", json=body).json()["choices"][0]
    assert text(answer) == reply_to("<tool_response>")
