"""Every kind of attempt of a turn, with the whole app and a real llama-server.

The engine adapter records the requests and the usage that the server reports. The model has
one reply for each nudge; see the constants below.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from proxy.api.app import ServerOptions
from proxy.api.streaming import StreamTimeouts
from proxy.backends.client import ReplyEvents
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import EventSink, UsageReported
from proxy.conversation.requests import Parsing, UpstreamRequest
from proxy.inference.plan import Policy
from proxy.processes.process import RunningServer
from temper_evals.demo.scripted_model import build_scripted_model
from tests.acceptance.test_parse_failure import TEMPLATE
from tests.fakes.answers import Answer
from tests.fakes.llama import plan_for, serving
from tests.fakes.running_proxy import RunningProxy, in_front_of
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.scripts import TOOLS, call, run_on_call
from tests.timeouts import TIMEOUT_SECONDS

CONTEXT_TOKENS = 8192
PARIS: tuple[JsonValue, JsonValue] = ("get_weather", {"city": "Paris"})
NAMED: JsonObject = {"type": "function", "function": {"name": "get_weather"}}

THOUGHTS = "".join(f"Thought number {number}. " for number in range(50))
SCRIPTS: dict[str, str | Sequence[str]] = {
    "default": "Hello.",
    "[[call]]": call('{"city": "Paris"}'),
    "[[fenced]]": '```json\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n```',
    "[[violation]]": run_on_call('{"city": "Nice", "unit": "kelvin"}'),
    "[[unknown tool]]": run_on_call('{"to": "the moon"}', "launch_rocket"),
    "[[prose]]": "It is sunny in Paris, I think.",
    "[[broken]]": run_on_call('{"city": "Nice", "days": }'),
    "[[long broken]]": THOUGHTS + run_on_call('{"city": "Graz", "days": }'),
    "[[other tool]]": run_on_call("{}", "get_time"),
    "[[empty]]": "",
    # a model that follows nudges
    "Invalid arguments:": run_on_call('{"city": "Paris"}'),
    "is not a tool.": call('{"city": "Paris"} '),
    "You answered in plain text.": run_on_call('{"city": "Paris" }'),
    # a model that ignores nudges until its reply is constrained
    "must not be called now": run_on_call("{ }", "get_time"),
    "Your reply was empty.": "",
    "Reply with one JSON object only": '{"name": "get_weather", "arguments": {"city": "Paris"}}',
    # a model that does not stop
    "could not be read": ("and so on", " and on\0"),
}
# A model on a server that cannot parse its replies.
UNREADABLE_SCRIPTS = {
    "default": "Hello.",
    "[[other keys]]": '{"name": "get_weather", "arguments": {"city": "Nice", "unit": "kelvin"}}',
    "Invalid arguments:": '{"name": "get_weather", "arguments": {"city": "Paris"}}',
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with a model that has a reply for every nudge."""
    model = tmp_path_factory.mktemp("model") / "ladder.gguf"
    build_scripted_model(model, SCRIPTS, context_tokens=CONTEXT_TOKENS)
    with serving(plan_for(model, context_tokens=CONTEXT_TOKENS)) as running:
        yield running


@pytest.fixture(scope="module")
def failing_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with a parser that fails."""
    model = tmp_path_factory.mktemp("model") / "unreadable.gguf"
    build_scripted_model(
        model, UNREADABLE_SCRIPTS, context_tokens=CONTEXT_TOKENS, template=TEMPLATE
    )
    with serving(plan_for(model, context_tokens=CONTEXT_TOKENS)) as running:
        yield running


@dataclass
class Attempt:
    """One upstream request: its start, its end, and the usage of the server."""

    upstream_request: UpstreamRequest
    began: float
    ended: float = 0.0
    timings: JsonObject = field(default_factory=dict)

    @property
    def cached(self) -> int:
        """The number of cached tokens of the prompt."""
        cached = self.timings["cache_n"]
        assert isinstance(cached, int)
        return cached

    @property
    def prompt(self) -> int:
        """The number of tokens of the prompt."""
        read = self.timings["prompt_n"]
        assert isinstance(read, int)
        return self.cached + read

    @property
    def messages(self) -> list[bytes]:
        """The messages of the upstream request."""
        return [message.source for message in self.upstream_request.messages]


class WatchedServer(LlamaServer):
    """A llama-server adapter that records requests and usage."""

    def __init__(self, server: RunningServer) -> None:
        super().__init__(BackendClient(server.base_url, server.api_key))
        self.attempts: list[Attempt] = []

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        clock = asyncio.get_running_loop().time
        attempt = Attempt(upstream_request, clock())
        self.attempts.append(attempt)
        try:
            async with aclosing(super().stream(upstream_request, headers)) as batches:
                async for batch in batches:
                    for event in batch:
                        if isinstance(event, UsageReported):
                            attempt.timings = event.timings or {}
                    yield batch
        finally:
            attempt.ended = clock()


@dataclass(frozen=True)
class Ladder:
    """Temper in front of a watched server."""

    proxy: RunningProxy
    engine: WatchedServer

    async def ask(
        self, prompt: str, *, stream: bool, policy: str = "respond", **others: JsonValue
    ) -> Answer:
        """Send a request with tools, and a header that selects the text policy."""
        body: JsonObject = {
            "model": "any",
            "messages": [{"role": "user", "content": prompt}],
            "tools": list(TOOLS),
            **others,
        }
        headers = {"x-temper-text-policy": policy}
        return await self.proxy.ask(body, stream=stream, headers=headers)

    @property
    def attempts(self) -> list[Attempt]:
        """The upstream requests so far."""
        return self.engine.attempts


@asynccontextmanager
async def ladder(
    server: RunningServer, policy: Policy | None = None, timeouts: StreamTimeouts | None = None
) -> AsyncGenerator[Ladder, None]:
    """Run the app in front of a server."""
    engine = WatchedServer(server)
    serves = ServerOptions(policy=policy or Policy(), timeouts=timeouts or StreamTimeouts())
    async with in_front_of(engine, serves, ScriptedBackend()) as proxy:
        yield Ladder(proxy, engine)


def check_appended(attempts: list[Attempt]) -> None:
    """Check that the messages of each attempt begin with those of the previous attempt."""
    for before, after in itertools.pairwise(attempts):
        assert after.messages[: len(before.messages)] == before.messages
        assert len(after.messages) > len(before.messages)
        assert after.upstream_request.tools == before.upstream_request.tools


def report_of(attempts: int, outcome: str, repairs: str = "") -> dict[str, str]:
    """Return the report that a client receives."""
    facts = {"attempts": str(attempts), "outcome": outcome}
    return {**facts, "repairs": repairs} if repairs else facts


async def test_a_valid_call_needs_one_attempt(server: RunningServer, *, stream: bool) -> None:
    async with ladder(server) as temper:
        answer = await temper.ask("[[call]]", stream=stream)
    assert f"n_ctx={CONTEXT_TOKENS}; " in answer.report.pop("context")
    assert (answer.called, answer.report) == ([PARIS], report_of(1, "clean"))
    (attempt,) = temper.attempts
    assert attempt.upstream_request.parsing is Parsing.BACKEND
    assert attempt.upstream_request.schema is None


async def test_a_call_in_a_fenced_json_block_is_rescued_without_a_retry(
    server: RunningServer, *, stream: bool
) -> None:
    async with ladder(server) as temper:
        answer = await temper.ask("[[fenced]]", stream=stream)
    assert answer.called == [PARIS]
    assert f"n_ctx={CONTEXT_TOKENS}; " in answer.report.pop("context")
    assert answer.report == report_of(1, "repaired", "rescued=fenced_json")
    assert len(temper.attempts) == 1


@pytest.mark.parametrize(
    ("prompt", "defect", "added"),
    [
        ("[[violation]]", "invalid_arguments", ["assistant", "tool"]),
        ("[[unknown tool]]", "unknown_tool", ["assistant", "tool"]),
        ("[[prose]]", "prose", ["assistant", "user"]),
    ],
)
async def test_a_model_that_follows_the_nudge_returns_a_valid_call_in_the_second_attempt(
    server: RunningServer, prompt: str, defect: str, added: list[str], *, stream: bool
) -> None:
    async with ladder(server) as temper:
        answer = await temper.ask(prompt, stream=stream)
    assert answer.called == [PARIS]
    assert answer.report["attempts"] == "2"
    assert answer.report["outcome"] == "retried"
    assert f"rejected={defect}" in answer.report["repairs"]
    check_appended(temper.attempts)
    first, second = temper.attempts
    assert [
        message.role for message in second.upstream_request.messages[len(first.messages) :]
    ] == added
    assert second.upstream_request.parsing is Parsing.BACKEND
    assert second.upstream_request.schema is None


async def test_after_a_parser_error_of_the_server_the_retries_are_parsed_by_temper(
    failing_server: RunningServer, *, stream: bool
) -> None:
    """The server fails to parse both the first reply and the reply to the nudge."""
    async with ladder(failing_server) as temper:
        answer = await temper.ask("[[other keys]]", stream=stream)
    assert answer.called == [PARIS]
    assert answer.report["attempts"] == "3"
    assert "rejected=unreadable,invalid_arguments" in answer.report["repairs"]
    parsing = [attempt.upstream_request.parsing for attempt in temper.attempts]
    assert parsing == [Parsing.BACKEND, Parsing.OURS, Parsing.OURS]
    lost, raw, nudged = temper.attempts
    assert raw.messages == lost.messages
    check_appended([raw, nudged])


@pytest.mark.parametrize(
    ("prompt", "choice", "defect"),
    [("[[empty]]", "auto", "empty"), ("[[other tool]]", NAMED, "wrong_tool")],
    ids=["auto", "named"],
)
async def test_the_third_attempt_is_constrained_to_a_valid_call(
    server: RunningServer, prompt: str, choice: JsonValue, defect: str, *, stream: bool
) -> None:
    async with ladder(server) as temper:
        answer = await temper.ask(prompt, stream=stream, policy="require", tool_choice=choice)
    check_constrained(temper.attempts, answer, defect)


async def test_empty_replies_to_a_required_call_end_in_a_constrained_call(
    server: RunningServer, *, stream: bool
) -> None:
    async with ladder(server) as temper:
        answer = await temper.ask("[[empty]]", stream=stream, tool_choice="required")
    check_constrained(temper.attempts, answer, "empty")


def check_constrained(attempts: list[Attempt], answer: Answer, defect: str) -> None:
    """Check that only the third attempt had a grammar, and that it returned the call."""
    assert (answer.called, answer.reason) == ([PARIS], "tool_calls")
    assert answer.report["attempts"] == "3"
    assert answer.report["outcome"] == "retried"
    assert f"rejected={defect};" in answer.report["repairs"] + ";"
    check_appended(attempts)
    assert [attempt.upstream_request.schema is None for attempt in attempts] == [True, True, False]


async def test_after_three_attempts_without_a_call_the_response_reports_exhausted_attempts(
    server: RunningServer, *, stream: bool
) -> None:
    """The constrained call is cut off, so even the third attempt returns no call."""
    async with ladder(server) as temper:
        answer = await temper.ask("[[empty]]", stream=stream, tool_choice="required", max_tokens=4)
    assert (answer.status, answer.called) == (200, [])
    assert answer.report["attempts"] == "3"
    assert answer.report["outcome"] == "exhausted"
    assert answer.error is None


async def test_an_invalid_call_is_not_retried_if_only_one_attempt_is_allowed(
    server: RunningServer, *, stream: bool
) -> None:
    async with ladder(server, Policy(attempts=1)) as temper:
        answer = await temper.ask("[[violation]]", stream=stream)
    assert (answer.called, answer.reason) == ([], "stop")
    assert answer.report["attempts"] == "1"
    assert answer.report["outcome"] == "exhausted"


async def test_in_strict_mode_exhausted_attempts_are_an_error_that_clients_do_not_retry(
    server: RunningServer, *, stream: bool
) -> None:
    async with ladder(server, Policy(is_strict=True)) as temper:
        answer = await temper.ask("[[empty]]", stream=stream, tool_choice="required", max_tokens=4)
    assert answer.error is not None
    assert answer.error["code"] == "tool_call_unrepairable"
    if not stream:  # the status was sent with the first part of the reply
        assert answer.status == 502
        assert answer.headers["x-should-retry"] == "false"
    assert len(temper.attempts) == 3


async def test_all_attempts_share_one_deadline(server: RunningServer, *, stream: bool) -> None:
    """If the second attempt had its own deadline, it would end after the shared deadline.

    On a busy machine, the second attempt may be stopped too late or not start at all, so one good
    run of several suffices.
    """
    for _ in range(8):
        if await is_stopped_early(server, stream=stream):
            return
    pytest.fail("the second attempt had a deadline of its own every time")


async def is_stopped_early(server: RunningServer, *, stream: bool) -> bool:
    """Return whether an endless second attempt is stopped at the shared deadline."""
    async with ladder(server, Policy(attempts=1)) as temper:
        for _ in range(3):
            await temper.ask("[[long broken]]", stream=stream)
    deadline = 4 * min(attempt.ended - attempt.began for attempt in temper.attempts)
    if deadline > TIMEOUT_SECONDS / 2:
        return False
    async with ladder(server, timeouts=StreamTimeouts(deadline=deadline)) as temper:
        answer = await temper.ask("[[long broken]]", stream=stream)
    if len(temper.attempts) < 2:
        return False
    if answer.error is not None:  # a reply with content is cut off instead of failing
        assert answer.error["code"] == "backend_timeout"
    elif answer.reason != "length":
        return False
    first, second = temper.attempts
    if second.timings:  # on a busy machine, the window can be full before the deadline
        return False
    assert second.ended - first.began >= 0.9 * deadline  # timers may fire a little early
    return second.ended - second.began < deadline


@pytest.mark.parametrize(
    ("prompt", "kinds"), [("[[violation]]", 2), ("[[empty]]", 3)], ids=["nudged", "constrained"]
)
async def test_retry_reuses_nearly_all_of_the_cached_prompt(
    server: RunningServer, prompt: str, kinds: int, *, stream: bool
) -> None:
    """The first words of the prompt are unique, so no other test has filled the cache with them."""
    words = " ".join(f"{prompt[2:-2]} {stream} {number}" for number in range(60))
    async with ladder(server) as temper:
        answer = await temper.ask(f"{words} {prompt}", stream=stream, policy="require")
    assert answer.called == [PARIS]
    first, *retries = temper.attempts
    assert len(retries) == kinds - 1
    assert first.cached < 0.5 * first.prompt
    for retry in retries:
        assert retry.cached >= 0.9 * first.prompt
