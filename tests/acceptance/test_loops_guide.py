"""The loops of docs/guides/loops.md, with a model that writes its calls as text."""

import pytest

from proxy.processes.process import RunningServer
from tests.fakes import guide
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.scripts import reply_to, run_on_call
from tests.fakes.sockets import listening_in_thread
from tests.fakes.sse import calls, says

LOOPS = ("openai", "openai, asynchronous", "openai, streaming", "httpx")
FRAMEWORKS = {"LangChain", "pydantic-ai", "openai-agents"}  # see tests/clients
OSLO = '{"city": "Oslo"}'
BROKEN = run_on_call('{"town": "Oslo"}')
ANSWER = "It is 21 degrees in Oslo."


@pytest.mark.parametrize("title", LOOPS)
def test_a_loop_of_the_guide_prints_the_answer_of_a_real_llama_server(
    title: str, llama_server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    question = "How is the weather in Oslo?"
    replaced = {question: f"{question} [[no newline]]"}
    if title == "httpx":
        key = f'headers={{"authorization": "Bearer {llama_server.api_key}"}}, timeout=300'
        replaced["timeout=300"] = key
    else:
        replaced['api_key="none"'] = f'api_key="{llama_server.api_key}"'
    guide.run(title, url=llama_server.base_url, **replaced)

    assert capsys.readouterr().out.strip() == reply_to("<tool_response>")


def test_the_guide_has_no_example_without_a_test() -> None:
    assert {*guide.examples()} == {
        *LOOPS,
        *FRAMEWORKS,
        "The tools of all examples",
        "Functions alone",
        "Parts of the guardrails",
        "Tools described in the prompt",
    }


@pytest.mark.parametrize("title", LOOPS)
def test_a_loop_retries_a_broken_call_and_then_runs_the_tool_and_prints_the_answer(
    title: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = (says(BROKEN), says(run_on_call(OSLO)), says(ANSWER))
    scripted = ScriptedBackend(*scripts)
    with listening_in_thread(scripted) as url:
        names = guide.run(title, url=url)
    messages = names["messages"]

    assert isinstance(messages, list)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[2]["content"] == "21 degrees in Oslo"
    assert capsys.readouterr().out.strip() == ANSWER
    assert len(scripted.upstream_requests) == len(scripts)
    assert b"21 degrees in Oslo" in scripted.upstream_requests[2].messages[-1]


def test_the_example_functions_alone_runs_the_called_function(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scripted = ScriptedBackend(calls("get_weather", OSLO))
    with listening_in_thread(scripted) as url:
        guide.run("Functions alone", url=url)

    assert capsys.readouterr().out.strip() == "21 degrees in Oslo"
    assert b"Its name, in English." in scripted.upstream_requests[0].tools[0]


def test_the_guardrails_example_retries_a_broken_call_with_a_nudge(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scripted = ScriptedBackend(says(BROKEN), says(run_on_call(OSLO)))
    with listening_in_thread(scripted) as url:
        guide.run("Parts of the guardrails", url=url)

    assert capsys.readouterr().out.strip() == 'get_weather({"city":"Oslo"}) (\'get_weather\',)'
    assert len(scripted.upstream_requests[1].messages) > 1


def test_the_prompted_tools_example_describes_tools_and_steps_in_the_system_prompt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = f'<tool_call>{{"name": "get_weather", "arguments": {OSLO}}}</tool_call>'
    backend = ScriptedBackend(says(call))
    with listening_in_thread(backend) as url:
        guide.run("Tools described in the prompt", url=url)
    assert capsys.readouterr().out.strip() == 'get_weather({"city":"Oslo"}) False'
    system = backend.upstream_requests[0].messages[0]
    assert b"Tell the weather in a city." in system
    assert b"Still required: get_weather." in system
