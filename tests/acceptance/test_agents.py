"""Agents in a program, with a scripted model on a real llama-server."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import pytest

from proxy.facts import Compacted
from proxy.processes.process import RunningServer
from temper import Agent, Conversation, Limits, Model, Stop, Text, Workflow
from temper_evals.demo.chat_template import chat_template
from temper_evals.demo.scripted_model import build_scripted_model
from tests.fakes.llama import CONTEXT_TOKENS, plan_for, seconds_until, serving
from tests.fakes.scripts import call

PAGES = 30
SCRIPTS = {
    "default": "There is nothing to say about that.",
    "[[weather]]": call('{"city": "Paris"}'),
    "21 degrees in Paris": "It is 21 degrees in Paris.",
    "[[report]]": call('{"text": "21 degrees"}', "report"),
    "comes too early": call('{"city": "Bern"}'),
    "9 degrees in Bern": call('{"text": "9 degrees"}', "report"),
    "[[read on]]": call("{}", "next_page"),
    "[[last page]]": "The book is about rain.",
    "[[forever]]": ("and so on", " and on\0"),
    "[[in short]]": "It rains.",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    model = tmp_path_factory.mktemp("agents") / "agents.gguf"
    build_scripted_model(model, SCRIPTS, context_tokens=CONTEXT_TOKENS, template=chat_template())
    with serving(plan_for(model)) as running:
        yield running


@asynccontextmanager
async def open_agent(server: RunningServer) -> AsyncGenerator[Model, None]:
    settings = {"backend": {"api_key": server.api_key}}
    async with Model(server.base_url, settings=settings) as model:
        yield model


def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return {"Paris": "21 degrees in Paris", "Bern": "9 degrees in Bern"}[city]


def report(text: str) -> str:
    """Submit the report."""
    return f"Handed in: {text}"


class Book:
    """A book with pages of about 600 characters each."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.read = 0

    def next_page(self) -> str:
        """Read the next page of the book."""
        self.read += 1
        end = "[[last page]]" if self.read == self.pages else "[[read on]]"
        return f"Page {self.read}: {f'It rained on day {self.read}. ' * 25}{end}"


async def test_an_agent_runs_the_called_tool_and_answers_with_its_result(
    server: RunningServer,
) -> None:
    async with open_agent(server) as model:
        result = await Agent(model, [get_weather]).run("How is Paris? [[weather]]")
    assert (result.stop, result.output) == (Stop.ANSWERED, "It is 21 degrees in Paris.")
    assert result.rounds[0].outcomes[0].value == "21 degrees in Paris"
    assert result.usage.requests == 2
    assert result.usage.cached_tokens > 0


async def test_a_call_of_a_terminal_tool_before_a_required_step_is_retried(
    server: RunningServer,
) -> None:
    rules = Workflow(required_steps=("get_weather",), terminal_tools=("report",))
    async with open_agent(server) as model:
        agent = Agent(model, [get_weather, report], workflow=rules)
        result = await agent.run("Report on Bern. [[report]]")
    assert (result.stop, result.output) == (Stop.TERMINAL, "Handed in: 9 degrees")
    assert [tool_round.outcomes[0].call.name for tool_round in result.rounds] == [
        "get_weather",
        "report",
    ]
    roles = [message["role"] for message in result.messages]
    assert roles == [
        "user",
        *("assistant", "tool") * 2,
    ]  # the rejected call and its retry are not in the history


async def test_the_prompts_of_a_run_longer_than_twice_the_window_are_compacted(
    server: RunningServer,
) -> None:
    book = Book(PAGES)
    async with open_agent(server) as model:
        agent = Agent(model, [book.next_page], limits=Limits(rounds=PAGES + 5))
        result = await agent.run("What is the book about? [[read on]]")
    assert (result.stop, result.output) == (Stop.ANSWERED, "The book is about rain.")
    assert (len(result.rounds), book.read) == (PAGES, PAGES)
    fitted = [fact for fact in result.facts if isinstance(fact, Compacted)]
    assert max(fact.client for fact in fitted) > 2 * CONTEXT_TOKENS
    assert max(fact.sent for fact in fitted) < CONTEXT_TOKENS
    assert (
        len(result.messages) == 2 + 2 * PAGES
    )  # the history is complete; only prompts are compacted


async def test_a_canceled_agent_frees_its_slot_of_the_server(
    server: RunningServer,
) -> None:
    async with open_agent(server) as model:
        async with Agent(model, [get_weather]).stream("Go on. [[forever]]") as stream:
            async for event in stream:
                if isinstance(event, Text):
                    stream.cancel()
            assert stream.result.stop is Stop.CANCELLED
        await seconds_until(server, is_busy=False)
        line = model.opened.preparation.services.find("").admission.queue
        assert (line.served, line.waiting) == (0, 0)


@pytest.mark.deep
async def test_two_concurrent_agents_each_reuse_their_prompt_cache(
    server: RunningServer,
) -> None:
    async with open_agent(server) as model:
        shares = await asyncio.gather(*(cached_share(model, slot) for slot in (0, 1)))
    assert min(shares) > 0.9


async def cached_share(model: Model, slot: int) -> float:
    """Read a book on a slot, and return the cached share of the next prompt on that slot."""
    book, talk = Book(4), Conversation()
    agent = Agent(
        model,
        [book.next_page],
        instructions=f"You are reader {slot}.",
        name=f"reader {slot}",
        parameters={"id_slot": slot},
    )
    await agent.run("What is the book about? [[read on]]", conversation=talk)
    result = await agent.run("And in a word? [[in short]]", conversation=talk)
    assert result.output == "It rains."
    return result.usage.cached_tokens / result.usage.prompt_tokens
