"""The agents of docs/guides/agent-library.md, run unchanged with scripted replies."""

import pytest

from proxy.conversation.json import JsonObject
from proxy.processes.process import RunningServer
from tests.fakes import guide
from tests.fakes.scripted_backend import Ending, Script, ScriptedBackend
from tests.fakes.scripts import reply_to
from tests.fakes.sockets import listening_in_thread
from tests.fakes.sse import START, calls, says, text

PAGE = "agent-library.md"
CALLED = calls("get_weather", '{"city": "Oslo"}')
ANSWER = says("It is 21 degrees.")
REPORT = calls("report", '{"text": "21 degrees in Oslo"}')
FORECAST = calls("forecast", '{"city": "Oslo"}')
LOOKED_UP = calls("look_up", '{"city": "Oslo"}')
NEVER = Script((START, text("One"), Ending.NEVER))

PROPERTIES: JsonObject = {"default_generation_settings": {"n_ctx": 8192}, "total_slots": 2}

EXAMPLES: dict[str, tuple[tuple[Script | bytes, ...], str]] = {
    "An agent": ((CALLED, ANSWER), "It is 21 degrees."),
    "Without async": ((CALLED, ANSWER), "It is 21 degrees."),
    "Streaming": ((CALLED, ANSWER), "It is 21 degrees. (1 round)"),
    "Calls while they are written": (
        (CALLED, ANSWER),
        'get_weather {"city": "Oslo"} -> It is 21 degrees.',
    ),
    "Answers through a tool": (
        (CALLED, calls("respond", '{"message": "It is 21 degrees."}')),
        "It is 21 degrees.",
    ),
    "Other APIs": ((), "user text\nassistant tool_use\nuser tool_result\nTrue"),
    "The model in use": ((), "template 8192 5856\nTrue True\nTrue True"),
    "Structured output": (
        (CALLED, says("Fine."), says('{"city": "Oslo", "degrees": 21}')),
        "city='Oslo' degrees=21",
    ),
    "Order rules": ((REPORT, CALLED, REPORT), "Reported: 21 degrees in Oslo"),
    "Continue a conversation": (
        (CALLED, ANSWER, says("It is.")),
        "It is. ['How is the weather in Oslo?', 'Is that warm?']",
    ),
    "Cancellation": ((NEVER,), "True"),
    "Runs without an answer": (
        (CALLED, ANSWER, LOOKED_UP),
        "rounds - It is 21 degrees.\nlook_up - Oslo is not in the list",
    ),
    "Approval": (
        (calls("delete", '{"path":"a"}'), says("Then not.")),
        'delete {"path":"a"}?\nrefused',
    ),
    "Prerequisites and caching": (
        (FORECAST, CALLED, FORECAST, says("Rain.")),
        "['get_weather', 'forecast'] Rain.",
    ),
    "Subclasses": ((CALLED, says("It is.\n", "TASK_COMPLETE")), "True 1 It is."),
    "Custom client and compaction": (
        (),
        "1 message removed\nI was sent 1 messages.",
    ),
    "Several agents on one server": (
        (ANSWER, ANSWER),
        "['It is 21 degrees.', 'It is 21 degrees.']",
    ),
}


@pytest.mark.parametrize("title", ["An agent", "Without async"])
def test_an_example_of_the_guide_prints_the_answer_of_a_real_llama_server(
    title: str,
    llama_server: RunningServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEMPER_BACKEND__API_KEY", llama_server.api_key)
    question = "How is the weather in Oslo?"
    replaced = {question: f"{question} [[no newline]]"}  # selects the scripted reply
    guide.run(title, page=PAGE, url=llama_server.base_url, **replaced)
    assert capsys.readouterr().out.strip() == reply_to("<tool_response>")


def test_the_guide_has_no_example_without_a_test() -> None:
    assert {*guide.examples(PAGE)} == {*EXAMPLES, "The tools of all examples"}


@pytest.mark.parametrize("title", EXAMPLES)
def test_with_scripted_replies_an_example_prints_the_documented_output(
    title: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts, printed = EXAMPLES[title]
    backend = ScriptedBackend(*scripts)
    backend.properties = PROPERTIES if title == "The model in use" else None
    with listening_in_thread(backend) as url:
        has_server = scripts or backend.properties
        guide.run(title, page=PAGE, **({"url": url} if has_server else {}))
    assert capsys.readouterr().out.strip() == printed
    assert len(backend.upstream_requests) == len(scripts)
