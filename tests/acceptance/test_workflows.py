"""Order rules, failures and missing arguments, with a model that follows nudges."""

from collections.abc import Iterator

import pytest

from proxy.api.app import ServerOptions
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.workflows import Workflow
from proxy.processes.process import RunningServer
from temper_evals.demo.scripted_model import build_scripted_model
from tests.fakes.answers import Answer
from tests.fakes.histories import call as made
from tests.fakes.histories import called, result, said
from tests.fakes.llama import plan_for, serving
from tests.fakes.running_proxy import in_front_of
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.scripts import TOOLS, call, run_on_call

SCRIPTS = {
    "default": "Hello.",
    "[[four]]": "It is four, without any doubt.",
    "An answer comes too early": call("{}", "get_time"),
    "[[no city]]": run_on_call("{}"),
    "do not guess: ask the user": "In which city are you?",
    "rounds failed": "No city is known. Where are you?",
}
FAILED: tuple[JsonObject, ...] = tuple(
    row
    for number, city in enumerate(("Pari", "Parri", "Baris"))
    for row in (
        called(made(f"c{number}", "get_weather", f'{{"city": "{city}"}}')),
        result(f"c{number}", "Error: no such city"),
    )
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with a model that follows nudges."""
    model = tmp_path_factory.mktemp("model") / "learning.gguf"
    build_scripted_model(model, SCRIPTS, context_tokens=8192)
    with serving(plan_for(model)) as running:
        yield running


async def ask(
    server: RunningServer, *messages: JsonValue, rules: Workflow | None = None, stream: bool
) -> Answer:
    connection = BackendClient(server.base_url, server.api_key)
    workflows = {} if rules is None else {"scripted": rules}
    serves = ServerOptions(workflows=workflows)
    body: JsonObject = {"model": "scripted", "messages": [*messages], "tools": [*TOOLS]}
    async with in_front_of(LlamaServer(connection), serves, ScriptedBackend()) as proxy:
        return await proxy.ask(body, stream=stream)


@pytest.mark.parametrize(
    "rules", [Workflow(("get_time",)), Workflow(("get_time",), (), ("get_weather",))]
)
async def test_answer_before_a_required_step_is_replaced_by_the_step(
    server: RunningServer, rules: Workflow, *, stream: bool
) -> None:
    answer = await ask(server, said("user", "[[four]]"), rules=rules, stream=stream)
    assert (answer.text or "", answer.called) == ("", [("get_time", {})])
    assert answer.report["repairs"] == "rejected=step_missing"


async def test_a_model_that_lacks_a_required_argument_asks_the_user_after_a_nudge(
    server: RunningServer, *, stream: bool
) -> None:
    answer = await ask(server, said("user", "[[no city]]"), stream=stream)
    assert (answer.text, answer.called) == ("In which city are you?", [])
    assert "rejected=invalid_arguments" in answer.report["repairs"]


async def test_after_three_failed_tool_calls_a_nudge_makes_the_model_ask_the_user(
    server: RunningServer, *, stream: bool
) -> None:
    answer = await ask(server, said("user", "How is it?"), *FAILED, stream=stream)
    assert answer.text == "No city is known. Where are you?"
    assert answer.report["repairs"] == "failures=3"
    assert answer.report["attempts"] == "1"
