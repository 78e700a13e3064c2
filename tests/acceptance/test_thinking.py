"""Reasoning that is enabled, disabled and limited, on a real llama-server, in every dialect.

The template writes its arguments into the prompt, and the scripted model selects its reply by them.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from proxy.api.app import ServerOptions
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.model_quirks import Quirks
from proxy.processes.process import RunningServer
from proxy.profiles.known_model import Overrides
from proxy.profiles.profile import Matching, Profile
from temper_evals.demo.chat_template import chat_template
from temper_evals.demo.scripted_model import build_scripted_model
from tests.fakes.llama import plan_for, serving
from tests.fakes.running_proxy import in_front_of
from tests.fakes.scripted_backend import ScriptedBackend

HEAD = """
{%- set silent = enable_thinking is defined and not enable_thinking %}
{%- if add_generation_prompt %}
  {%- if reasoning_effort is defined %}{{- '[[' + reasoning_effort + ']]' }}{% endif %}
  {%- if silent %}{{- '[[silent]]' }}{% endif %}"""
TAIL = """
  {%- if silent %}{{- '<think>\\n\\n</think>\\n\\n' }}{% else %}{{- '<think>\\n' }}{% endif %}
{%- endif %}"""
LONG = "I wonder and wonder. " * 20
SCRIPTS = {
    "default": f"{LONG}\n</think>\n\nI thought about it.",
    "[[silent]]": "I did not think.",
    "[[low]]": "Well.\n</think>\n\nI thought a little.",
    "[[high]]": "Well, well, well.\n</think>\n\nI thought hard.",
    "[[xhigh]]": "Well, well, well, well.\n</think>\n\nI thought harder.",
}
USUAL = "I thought about it."
SILENT = "I did not think."
HARD = "I thought hard."

HI: JsonObject = {"role": "user", "content": "Hi"}
CHAT: JsonObject = {"model": "m", "messages": [HI]}
MESSAGES: JsonObject = {"model": "m", "messages": [HI], "max_tokens": 300}
RESPONSES: JsonObject = {"model": "m", "input": "Hi"}


class Answer(NamedTuple):
    """A model's reasoning and its text."""

    thoughts: str
    text: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server whose template opens the reasoning block, and closes it if reasoning is disabled."""
    head, _ = chat_template(thinking=True).split("\n{%- if add_generation_prompt %}")
    template = f"{head}{HEAD}\n  {{{{- '<|im_start|>assistant\\n' }}}}{TAIL}"
    model = tmp_path_factory.mktemp("model") / "thinking.gguf"
    build_scripted_model(model, SCRIPTS, context_tokens=4096, template=template)
    with serving(plan_for(model, context_tokens=4096)) as running:
        yield running


async def ask(
    server: RunningServer,
    path: str,
    body: Mapping[str, JsonValue],
    *,
    thinking: bool | None = None,
    profile: Profile | None = None,
) -> Answer:
    """Send a request through Temper; `thinking` and `profile` are the operator's settings."""
    connection = BackendClient(server.base_url, server.api_key)
    serves = ServerOptions(overrides=Overrides(profile, thinking=thinking))
    async with in_front_of(LlamaServer(connection), serves, ScriptedBackend()) as proxy:
        answer = await proxy.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return _read(answer.json())


def _read(answer: JsonObject) -> Answer:
    match answer:
        case {"choices": [{"message": {"content": str() as text, **others}}]}:
            return Answer(str(others.get("reasoning_content", "")), text)
        case {"content": [{"thinking": str() as thoughts}, {"text": str() as text}]}:
            return Answer(thoughts, text)
        case {"content": [{"text": str() as text}]}:
            return Answer("", text)
        case {"output": [*thoughts, {"content": [{"text": str() as text}]}]}:
            return Answer(str(thoughts or ""), text)
        case _:
            raise AssertionError(answer)


BOUNDED: JsonObject = {"type": "enabled", "budget_tokens": 10}
GENEROUS: JsonObject = {"type": "enabled", "budget_tokens": 9000}
LANGUAGES = [
    ("/v1/chat/completions", CHAT),
    ("/v1/messages", MESSAGES),
    ("/v1/responses", RESPONSES),
]


@pytest.mark.parametrize(("path", "body"), LANGUAGES)
@pytest.mark.parametrize(("thinking", "text"), [(None, USUAL), (True, USUAL), (False, SILENT)])
async def test_a_request_without_reasoning_options_uses_the_operators_setting(
    server: RunningServer, path: str, body: JsonObject, thinking: bool | None, text: str
) -> None:
    answer = await ask(server, path, body, thinking=thinking)
    assert (answer.text, bool(answer.thoughts)) == (text, thinking is not False)


@pytest.mark.parametrize("thinking", [None, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {**CHAT, "reasoning_effort": "none"}),
        ("/v1/chat/completions", {**CHAT, "chat_template_kwargs": {"enable_thinking": False}}),
        ("/v1/messages", {**MESSAGES, "thinking": {"type": "disabled"}}),
        ("/v1/responses", {**RESPONSES, "reasoning": {"effort": "none"}}),
    ],
)
async def test_a_client_can_disable_reasoning_in_its_dialect(
    server: RunningServer, path: str, body: JsonObject, thinking: bool | None
) -> None:
    assert await ask(server, path, body, thinking=thinking) == ("", SILENT)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {**CHAT, "chat_template_kwargs": {"enable_thinking": True}}),
        ("/v1/messages", {**MESSAGES, "thinking": GENEROUS}),
    ],
)
async def test_a_client_can_enable_reasoning_that_the_operator_disabled(
    server: RunningServer, path: str, body: JsonObject
) -> None:
    answer = await ask(server, path, body, thinking=False)
    assert answer.text == USUAL


MUCH_EFFORT = pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {**CHAT, "reasoning_effort": "high"}),
        ("/v1/messages", {**MESSAGES, "output_config": {"effort": "max"}}),
        ("/v1/responses", {**RESPONSES, "reasoning": {"effort": "xhigh"}}),
    ],
)


@MUCH_EFFORT
async def test_an_effort_does_not_enable_reasoning_that_the_operator_disabled(
    server: RunningServer, path: str, body: JsonObject
) -> None:
    assert (await ask(server, path, body)).text == HARD
    assert (await ask(server, path, body, thinking=False)).text == SILENT


async def test_a_thinking_budget_ends_the_reasoning_early(server: RunningServer) -> None:
    whole = await ask(server, "/v1/messages", MESSAGES)
    bounded = await ask(server, "/v1/messages", {**MESSAGES, "thinking": BOUNDED})
    assert whole.thoughts.strip() == LONG.strip()
    assert LONG.startswith(bounded.thoughts.strip())
    assert 0 < len(bounded.thoughts) < len(whole.thoughts) / 2


@MUCH_EFFORT
async def test_the_effort_is_replaced_by_the_nearest_effort_of_the_profile(
    server: RunningServer, path: str, body: JsonObject
) -> None:
    profile = Profile("own", "Own", Quirks(efforts=("low", "xhigh")), Matching(("own",)))
    assert (await ask(server, path, body, profile=profile)).text == "I thought harder."
