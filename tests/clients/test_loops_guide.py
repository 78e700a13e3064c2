"""The frameworks of docs/guides/loops.md with `temper serve`, and a model that leaks calls."""

import pytest

from tests.fakes import guide
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.scripts import run_on_call
from tests.fakes.sockets import listening_in_thread
from tests.fakes.sse import says

FRAMEWORKS = {
    "LangChain": "langchain_openai",
    "pydantic-ai": "pydantic_ai",
    "openai-agents": "agents",
}
ANSWER = "It is 21 degrees in Oslo."


@pytest.mark.parametrize("title", FRAMEWORKS)
def test_an_agent_runs_its_tool_and_answers(title: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip(FRAMEWORKS[title], reason="needs the extra `clients`")
    leaked = run_on_call('{"city": "Oslo"}')
    scripted = ScriptedBackend(says(leaked), says(ANSWER))
    with listening_in_thread(scripted) as url:
        guide.run(title, url=url)

    assert capsys.readouterr().out.strip() == ANSWER
    assert len(scripted.upstream_requests) == 2
    assert b"21 degrees in Oslo" in scripted.upstream_requests[1].messages[-1]
