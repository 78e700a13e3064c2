"""Facts are recalled in a conversation ten times as long as the window, on a real llama-server."""

from pathlib import Path
from random import Random

from proxy.backends.client import ReplyEvents
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import EventSink, UsageReported
from proxy.conversation.requests import UpstreamRequest
from proxy.dialects.lenient_json import cached_tokens
from proxy.mcp.built_in import NoToolServers
from proxy.mcp.execution import ToolOffer
from proxy.mcp.hosting import ToolHosting
from temper_evals.demo.scripted_model import build_scripted_model
from tests.fakes.histories import call, called, result, said
from tests.fakes.llama import plan_for, serving
from tests.fakes.running_proxy import in_front_of
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.scripts import WEATHER_TOOL
from tests.fakes.scripts import call as write_call
from tests.timeouts import with_timeout

WINDOW = 8_192  # tokens; nearly every letter is a token, because the tokenizer has only four merges
TURNS = 250
LEAST_CACHED = 0.85
FACTS = 20
SUBJECTS = ("billing", "search", "login", "export", "mail", "import", "chat", "report", "backup",
            "print", "upload", "invoice", "map", "calendar", "player", "editor", "wallet", "feed",
            "archive", "forum")  # fmt: skip
WORDS = (  # the words of the facts
    "the service was restarted after port owner of team said that number reviews deploy log is "
    "green again on Monday"
)


def fact(number: int) -> str:
    return f"The {SUBJECTS[number]} service listens on port {4_000 + 37 * number}."


def model_file(path: Path) -> Path:
    """Write a model that calls `recall` if the user asks for a fact."""
    scripts = {"default": "I have noted that.", "<tool_response>": "I have read the result."}
    for number, subject in enumerate(SUBJECTS):
        query = json.dump_text({"query": f"port of the {subject} service"})
        scripts[f"[[fact {number}]]"] = write_call(query, "recall")
    build_scripted_model(path, scripts, context_tokens=WINDOW)
    return path


class Watched(LlamaServer):
    """Stores the requests, and the prompt tokens and cached tokens that the server reports."""

    def __init__(self, connection: BackendClient) -> None:
        super().__init__(connection)
        self.requests: list[UpstreamRequest] = []
        self.read: list[tuple[int, int]] = []

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        self.requests.append(upstream_request)
        async for batch in super().stream(upstream_request, headers, sink):
            for event in batch:
                if isinstance(event, UsageReported):
                    prompt = int(f"{event.usage['prompt_tokens']}")
                    self.read.append((prompt, cached_tokens(event.usage) or 0))
            yield batch


def turn(number: int, draw: Random) -> list[JsonObject]:
    """Return the messages that a client adds before its next request; a fact may be in them."""
    words = [" ".join(draw.choices(WORDS.split(), k=9)) for _ in range(6)]
    if number % (TURNS // FACTS) == 1 and number // (TURNS // FACTS) < FACTS:
        words.insert(3, fact(number // (TURNS // FACTS)))
    if number % 3:
        return [said("user", f"Note {number}: " + ". ".join(words))]
    name = f"call_{number}"
    arguments = json.dump_text({"city": f"City {number}"})
    return [called(call(name, "get_weather", arguments)), result(name, "\n".join(words))]


@with_timeout
async def test_all_facts_are_found_and_the_cache_is_used(tmp_path: Path) -> None:
    draw = Random(7)
    messages = [said("system", "Take notes."), said("user", "I dictate.")]
    hosting = ToolHosting(ToolOffer(NoToolServers()), recalls=True)
    model = model_file(tmp_path / "recall.gguf")
    context, hits = "", []
    with serving(plan_for(model, context_tokens=WINDOW, slots=1)) as server:
        engine = Watched(BackendClient(server.base_url, server.api_key))
        async with in_front_of(engine, None, ScriptedBackend(), tools=hosting) as proxy:

            async def ask(*added: JsonObject) -> str:
                messages.extend(added)
                body: JsonObject = {
                    "model": "m",
                    "messages": [*messages],
                    "tools": [WEATHER_TOOL],
                    "max_tokens": 200,
                }
                answer = await proxy.ask(body)
                assert (answer.status, answer.calls) == (200, []), answer.body
                messages.append(said("assistant", answer.text))
                return answer.headers["x-temper-context"]

            for number in range(TURNS):
                context = await ask(*turn(number, draw))
            length = int(context.partition("client=")[2].partition(";")[0])
            in_prompt = b"".join(message.source for message in engine.requests[-1].messages)
            for number in range(FACTS):
                await ask(said("user", f"Look it up: [[fact {number}]]"))
                hits.append(fact(number) in engine.requests[-1].messages[-1].text)
    assert len(engine.read) == len(engine.requests) == TURNS + 2 * FACTS
    share = sum(cached for _, cached in engine.read) / sum(prompt for prompt, _ in engine.read)
    lost = sum(fact(number).encode() not in in_prompt for number in range(FACTS))
    assert length >= 10 * WINDOW
    assert lost >= FACTS - 3
    assert hits == [True] * FACTS
    assert share >= LEAST_CACHED
