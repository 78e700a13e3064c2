"""A real llama-server whose parser fails, as it does for models with plain JSON calls."""

from collections.abc import Iterator

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam

from proxy.conversation import json
from proxy.processes.process import RunningServer
from temper_evals.demo.scripted_model import build_scripted_model
from tests.fakes.command import running_temper
from tests.fakes.llama import plan_for, serving
from tests.fakes.scripts import TOOLS
from tests.fakes.sdk_answers import OFFERED
from tests.timeouts import TIMEOUT_SECONDS

# The calls of this template are plain JSON, so the server parses every reply that does not begin
# like prose. If the reply is not exactly a call, the server responds with 500 and drops it.
TEMPLATE = """
{%- if tools %}{{- '<|im_start|>system\\nReply with JSON to call a function:\\n' }}
  {%- for tool in tools %}{{- (tool | tojson) + '\\n' }}{% endfor %}{{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
  {{- '<|im_start|>' + message.role + '\\n' }}
  {%- if 'tool_calls' in message %}
    {%- set call = message.tool_calls[0].function %}
    {{- '{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + '}' }}
  {%- else %}{{- message.content }}{% endif %}
  {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
""".strip()
SCRIPTS = {
    "default": "Hello.",
    "[[other keys]]": '{"name": "get_weather", "arguments": {"city": "Lyon"}}',
    "[[tags]]": '<tool_call>{"name": "get_weather", "arguments": {"city": "Cork"}}</tool_call>',
    "[[fence]]": '```json\n{"name": "get_weather", "parameters": {"city": "Metz"}}\n```',
}
CITIES = {"[[other keys]]": "Lyon", "[[tags]]": "Cork", "[[fence]]": "Metz"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with a model that calls in plain JSON."""
    model = tmp_path_factory.mktemp("model") / "plain.gguf"
    build_scripted_model(model, SCRIPTS, context_tokens=4096, template=TEMPLATE)
    with serving(plan_for(model, context_tokens=4096)) as running:
        yield running


@pytest.fixture(scope="module")
def url(server: RunningServer) -> Iterator[str]:
    """The address of Temper in front of the server."""
    key = {"TEMPER_BACKEND__API_KEY": server.api_key}
    with running_temper("--backend-url", server.base_url, environment=key) as address:
        yield address


@pytest.mark.parametrize("prompt", CITIES)
def test_without_temper_a_reply_that_the_server_cannot_parse_is_a_500(
    server: RunningServer, prompt: str
) -> None:
    body = {"messages": [{"role": "user", "content": prompt}], "tools": list(TOOLS)}
    headers = {"authorization": f"Bearer {server.api_key}"}
    answer = httpx.post(
        f"{server.base_url}/v1/chat/completions",
        json=body,
        headers=headers,
        timeout=TIMEOUT_SECONDS,
    )
    assert answer.status_code == 500
    assert "does not match the expected" in answer.json()["error"]["message"]


def city_called(message: ChatCompletionMessage) -> json.JsonValue:
    """Return the argument of the only call of a message."""
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    assert call.type == "function"
    assert call.function.name == "get_weather"
    arguments = json.parse(call.function.arguments)
    assert isinstance(arguments, dict)
    return arguments["city"]


@pytest.mark.fault("F16")
@pytest.mark.parametrize("prompt", CITIES)
def test_with_temper_a_reply_that_the_server_cannot_parse_becomes_a_call(
    url: str, prompt: str
) -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": prompt}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        completion = client.chat.completions.create(model="any", messages=messages, tools=OFFERED)
    assert city_called(completion.choices[0].message) == CITIES[prompt]


@pytest.mark.fault("F16")
@pytest.mark.parametrize("prompt", CITIES)
def test_with_temper_a_reply_that_the_server_cannot_parse_is_streamed_as_a_call(
    url: str, prompt: str
) -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": prompt}]
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        client.chat.completions.stream(model="any", messages=messages, tools=OFFERED) as stream,
    ):
        completion = stream.get_final_completion()
    assert city_called(completion.choices[0].message) == CITIES[prompt]
