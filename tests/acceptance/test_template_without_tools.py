"""A template without tools and system role, in which roles must alternate, on a llama-server.

Gemma has such a template. Temper recognizes it and describes the tools in the prompt.
"""

from collections.abc import Iterator

import httpx
import pytest

from proxy.api.app import ServerOptions
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import ToolCall
from proxy.guardrails.tool_prompts.history import CONVENTIONS
from proxy.processes.process import RunningServer
from proxy.profiles.known_model import Overrides
from temper_evals.demo.scripted_model import build_scripted_model
from tests.acceptance.test_ladder import WatchedServer
from tests.fakes.answers import Answer
from tests.fakes.llama import plan_for, serving
from tests.fakes.running_proxy import in_front_of
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.scripts import TOOLS, run_on_call
from tests.timeouts import TIMEOUT_SECONDS

TEMPLATE = """
{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for message in messages %}
  {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
    {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
  {%- endif %}
  {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
""".strip()
CITY = '{"city": "Paris"}'
SCRIPTS = {
    "default": "Hello.",
    **{
        f"[[{convention.name}]]": convention.write_calls("", [ToolCall("x", "get_weather", CITY)])
        for convention in CONVENTIONS
    },
    "[[labelled]]": "Thought: I looked outside.\nFinal Answer: It is sunny.",
    "[[invented]]": (
        f"Thought: A tool knows.\nAction: get_weather\nAction Input: {CITY}\n"
        "Observation: it rains\nThought: Bad.\nFinal Answer: It rains."
    ),
    "[[violation]]": run_on_call("{}"),
    "[[prose]]": "It is sunny, I think.",
    "[[final]]": '{"type": "final", "content": "It is sunny."}',
    "Invalid arguments:": run_on_call('{"city": "Paris", "days": 2}'),
    "You answered in plain text.": run_on_call('{"city": "Oslo"}'),
    "sunny in Paris": "Good to know.",
}
SYSTEM: JsonObject = {"role": "system", "content": "Be kind."}
RAN: list[JsonValue] = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": CITY}}
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "sunny in Paris"},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with this template."""
    model = tmp_path_factory.mktemp("model") / "strict.gguf"
    build_scripted_model(model, SCRIPTS, context_tokens=8192, template=TEMPLATE)
    with serving(plan_for(model)) as running:
        yield running


async def ask(
    server: RunningServer,
    prompt: str,
    *more: JsonValue,
    overrides: Overrides | None = None,
    policy: str = "respond",
) -> tuple[Answer, WatchedServer]:
    engine = WatchedServer(server)
    body: JsonObject = {
        "messages": [SYSTEM, {"role": "user", "content": prompt}, *more],
        "tools": list(TOOLS),
    }
    serves = ServerOptions(overrides=overrides or Overrides())
    async with in_front_of(engine, serves, ScriptedBackend()) as proxy:
        answer = await proxy.ask(body, headers={"x-temper-text-policy": policy})
    return answer, engine


def test_without_temper_the_server_rejects_two_user_messages_in_a_row(
    server: RunningServer,
) -> None:
    hello: JsonObject = {"role": "user", "content": "Hi"}
    body: JsonObject = {"messages": [hello, hello]}
    headers = {"authorization": f"Bearer {server.api_key}"}
    url = f"{server.base_url}/v1/chat/completions"
    assert httpx.post(
        url, json=body, headers=headers, trust_env=False, timeout=TIMEOUT_SECONDS
    ).is_error


@pytest.mark.parametrize("name", [convention.name for convention in CONVENTIONS])
async def test_every_convention_describes_tools_in_the_prompt_and_parses_a_call(
    server: RunningServer, name: str
) -> None:
    answer, engine = await ask(server, f"[[{name}]]", overrides=Overrides(convention=name))
    assert answer.called == [("get_weather", {"city": "Paris"})]
    (attempt,) = engine.attempts
    (message,) = attempt.upstream_request.messages
    assert (message.role, "Be kind." in message.text) == ("user", True)


async def test_without_settings_tools_are_in_the_prompt_because_the_template_has_none(
    server: RunningServer,
) -> None:
    answer, engine = await ask(server, "[[hermes]]")
    assert answer.called == [("get_weather", {"city": "Paris"})]
    assert engine.attempts[0].upstream_request.tools == ()


@pytest.mark.parametrize(
    ("prompt", "called"),
    [("[[violation]]", {"city": "Paris", "days": 2}), ("[[prose]]", {"city": "Oslo"})],
)
async def test_a_nudge_keeps_the_turn_order_and_the_cached_prompt(
    server: RunningServer, prompt: str, called: JsonObject
) -> None:
    answer, engine = await ask(server, prompt)
    assert answer.called == [("get_weather", called)]
    first, second = engine.attempts
    assert [message.role for message in second.upstream_request.messages] == [
        "user",
        "assistant",
        "user",
    ]
    assert second.messages[:1] == first.messages
    assert second.cached >= 0.9 * first.prompt


async def test_a_tool_result_is_sent_as_a_user_message_so_that_roles_alternate(
    server: RunningServer,
) -> None:
    answer, engine = await ask(server, "[[hermes]]", *RAN, policy="accept")
    assert answer.text == "Good to know."
    roles = [message.role for message in engine.attempts[0].upstream_request.messages]
    assert roles == ["user", "assistant", "user"]


async def test_a_final_answer_in_the_json_convention_becomes_plain_text(
    server: RunningServer,
) -> None:
    answer, _ = await ask(server, "[[final]]", overrides=Overrides(convention="json"))
    assert (answer.text, answer.report["attempts"]) == ("It is sunny.", "1")


REACT = Overrides(convention="react")


@pytest.mark.parametrize("policy", ["auto", "respond"])
async def test_labeled_reasoning_is_separated_from_the_labeled_answer(
    server: RunningServer, policy: str
) -> None:
    answer, engine = await ask(server, "[[labelled]]", overrides=REACT, policy=policy)
    assert (answer.text, answer.reasoning) == ("It is sunny.", "I looked outside.")
    assert len(engine.attempts) == 1


async def test_a_model_is_stopped_before_it_invents_a_result(server: RunningServer) -> None:
    answer, engine = await ask(server, "[[invented]]", overrides=REACT)
    assert answer.called == [("get_weather", {"city": "Paris"})]
    assert (answer.text or "", answer.reasoning) == ("", "A tool knows.")
    (attempt,) = engine.attempts
    assert attempt.upstream_request.stops == ("\nObservation:",)
    assert "dropped" not in answer.report["repairs"]


async def test_calls_and_results_in_the_history_have_react_labels(server: RunningServer) -> None:
    answer, engine = await ask(server, "Hello", *RAN, overrides=REACT, policy="auto")
    assert answer.text == "Good to know."
    texts = [message.text for message in engine.attempts[0].upstream_request.messages]
    assert texts[1:] == [
        f"Action: get_weather\nAction Input: {CITY}",
        'Observation: "sunny in Paris"',
    ]
