"""A model that makes no errors in an agent loop, as a mock backend and as a real server.

The last trigger in the prompt selects the reply: words in the user's message or in a tool result.
A loop with the right answer has therefore transmitted every call and every result.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
from anyio.from_thread import start_blocking_portal
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from benchmarks.healthy.replies import Call, Reply, streamed, whole
from benchmarks.load.workloads import describe_tool
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.processes.launch import LaunchPlan
from temper_evals.demo.chat_template import chat_template
from temper_evals.demo.scripted_model import build_scripted_model
from tests.fakes import scripts
from tests.fakes.command import running_temper
from tests.fakes.llama import plan_for, serving
from tests.fakes.sockets import listening
from tests.timeouts import TIMEOUT_SECONDS

MODEL = "scripted"
WEATHER = {
    "Paris": "30 degrees in Paris",
    "Oslo": "21 degrees in Oslo",
    "Bern": "9 degrees in Bern",
    "Graz": "4 degrees in Graz",
}
TIME = "The clock says 12:40"

TRIP = "Compare Paris with Oslo, and tell the time. [[trip]]"
FACTS = "What is known about Paris? [[facts]]"
TRIP_ANSWER = "It is 30 degrees in Paris and 21 in Oslo, and the time is 12:40. Paris is warmer."
TRIP_CALLS = (("get_weather", "Paris"), ("get_weather", "Oslo"), ("get_time", ""))
TRIP_GENERATIONS = 3

# a coding agent runs `cat` with its shell tool, and reports the code word in the output
CODE_WORD = "ZEBRA-4711"
CODE_ANSWER = f"The code word is {CODE_WORD}."
CODE_GENERATIONS = 2
# The first request of a coding agent has 50 kB, and a token of this model is about one byte.
AGENT_TOKENS = 131_072
_FACTS = '{"city": "Paris", "country": "France"}'
FACT: JsonObject = {"city": "Paris", "country": "France"}
FACT_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
    "required": ["city", "country"],
}


class Fact(BaseModel):
    """The schema `FACT_SCHEMA` as a pydantic model."""

    city: str
    country: str


PARIS = Fact(city="Paris", country="France")
TOOLS = (
    describe_tool("get_weather", {"city": {"type": "string"}}, required=("city",)),
    describe_tool("get_time", {}, required=()),
)


def _call(name: str, **arguments: JsonValue) -> Call:
    return Call(name, json.dump_text(arguments).replace('":"', '": "').replace('","', '", "'))


SAID: dict[str, Reply] = {
    "[[trip]]": Reply(
        calls=(_call("get_weather", city="Paris"), _call("get_weather", city="Oslo"))
    ),
    WEATHER["Oslo"]: Reply("Both are known now. One moment, the time.", (_call("get_time"),)),
    TIME: Reply(TRIP_ANSWER),
    # coding agents
    "[[by Bash]]": Reply(calls=(Call("Bash", '{"command": "cat secret.txt"}'),)),
    "[[by exec_command]]": Reply(calls=(Call("exec_command", '{"cmd": "cat secret.txt"}'),)),
    CODE_WORD: Reply(CODE_ANSWER),
    # a response with a format
    "[[facts]]": Reply(_FACTS),
    "[[call Fact]]": Reply(calls=(Call("Fact", _FACTS),)),
    "[[call final_result]]": Reply(calls=(Call("final_result", _FACTS),)),
    # tools first, then a response with a format: by a call, or as text
    "[[Bern]]": Reply(calls=(_call("get_weather", city="Bern"),)),
    WEATHER["Bern"]: Reply(calls=(Call("final_result", _FACTS),)),
    "[[Graz]]": Reply(calls=(_call("get_weather", city="Graz"),)),
    WEATHER["Graz"]: Reply(_FACTS),
}
# prompts of coding agents, for the mock backend only
PICTURE_FILE, PDF_FILE = "picture.png", "paper.pdf"
SIGHT_ANSWER, BLIND_ANSWER, PDF_ANSWER = "It is red.", "I cannot see it.", "I cannot read it."
_SUBAGENT: JsonObject = {
    "description": "read it",
    "prompt": "Run it. [[by Bash]]",
    "subagent_type": "general-purpose",
    "run_in_background": False,
}
_SILENT = "[[in silence]]"
_BYTES_PER_TOKEN = 4
LONG_FILES = 6
ASKED_OF_THE_MOCK: dict[str, Reply] = {
    "[[by Agent]]": Reply(calls=(Call("Agent", json.dump_text(_SUBAGENT)),)),
    "[[picture]]": Reply(calls=(_call("Read", file_path=PICTURE_FILE),)),
    "[[paper]]": Reply(calls=(_call("Read", file_path=PDF_FILE),)),
    '"type":"image_url"': Reply(SIGHT_ANSWER),
    "[An image that this model cannot read.]": Reply(BLIND_ANSWER),
    "to read PDFs this server needs the extra": Reply(PDF_ANSWER),
    _SILENT: Reply(CODE_ANSWER),
}
for _number in range(LONG_FILES):
    ASKED_OF_THE_MOCK[f"[[Bash file {_number}]]"] = Reply(
        calls=(_call("Bash", command=f"cat long{_number}.txt"),)
    )
    ASKED_OF_THE_MOCK[f"[[exec_command file {_number}]]"] = Reply(
        calls=(_call("exec_command", cmd=f"cat long{_number}.txt"),)
    )
_NOTHING = Reply("There is nothing to say about that.")
_AFTER_NUDGE = Reply(calls=(_call("get_time"),))  # the reply to a nudge that asks for a call


@dataclass
class Tools:
    """The tools of a client, with a log of their calls."""

    called: list[tuple[str, str]]

    def get_weather(self, city: str) -> str:
        """Tell the weather in a city."""
        self.called.append(("get_weather", city))
        return WEATHER[city]

    def get_time(self) -> str:
        """Tell the time."""
        self.called.append(("get_time", ""))
        return TIME

    def run(self, name: str, arguments: dict[str, str]) -> str:
        """Run a tool by name."""
        return self.get_weather(**arguments) if name == "get_weather" else self.get_time()


@dataclass(frozen=True)
class Served:
    """A server in front of a model, mostly Temper; `generations` counts the replies.

    With `leaks` the model writes its calls as text. `refusals` counts the mock's rejections of
    prompts that were too long.
    """

    url: str
    generations: Callable[[], int]
    leaks: bool = False
    refusals: Callable[[], int] = lambda: 0

    @property
    def rescued_calls(self) -> int:
        """The number of calls rescued from text."""
        return _read_counter(self.url.removesuffix("/v1"), "temper_rescued_calls_total")


def check_trip(served: Served, follow: Callable[[Tools], str]) -> None:
    """Run a whole loop: each expected call is made once, and calls written as text are rescued."""
    tools, before = Tools([]), served.generations()
    rescued = served.rescued_calls if served.leaks else 0
    assert follow(tools).endswith(TRIP_ANSWER)
    assert tools.called == [*TRIP_CALLS]
    assert served.generations() - before == TRIP_GENERATIONS
    if served.leaks:
        assert served.rescued_calls - rescued == len(TRIP_CALLS)


def check_trip_ended(served: Served, tools: Tools, answer: object) -> None:
    """Check the end of a loop in which the first two calls may have run in either order."""
    assert answer == TRIP_ANSWER
    assert sorted(tools.called[:2]) == sorted(TRIP_CALLS[:2])
    assert tools.called[2:] == list(TRIP_CALLS[2:])
    assert served.generations() == TRIP_GENERATIONS


def temper_with(backend: str, folder: Path) -> AbstractContextManager[Served]:
    """Run Temper in front of the mock backend (`mock`) or a real llama-server."""
    return temper_with_mock() if backend == "mock" else temper_with_llama_server(folder)


@contextmanager
def temper_with_mock(
    *, rejects_images: bool = False, silence: float = 0.0, window: int = 0, **settings: str
) -> Iterator[Served]:
    """Run Temper in front of the mock backend; `settings` are environment variables of Temper."""
    with (
        right_backend(rejects_images=rejects_images, silence=silence, window=window) as backend,
        running_temper("--backend-url", backend.url, environment=settings) as url,
    ):
        yield replace(backend, url=f"{url}/v1")


@contextmanager
def right_backend(
    *, rejects_images: bool = False, silence: float = 0.0, window: int = 0
) -> Iterator[Served]:
    """Run the mock backend, with a model that makes no errors.

    With `rejects_images`, it declares that it accepts no images. If a message has `[[in silence]]`,
    it pauses for `silence` seconds after its first event. With a `window`, it rejects longer
    prompts.
    """
    backend = _RightBackend(silence, window)
    if rejects_images:
        backend.app.routes.append(Route("/props", backend.properties))
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(listening(backend.app)) as server,
    ):
        yield Served(server.url, lambda: backend.generations, refusals=lambda: backend.refusals)


@contextmanager
def temper_with_llama_server(folder: Path) -> Iterator[Served]:
    """Run Temper in front of a real llama-server with a model written into a folder."""
    model = folder / "loops.gguf"
    build_scripted_model(model, _scripts(), template=chat_template())
    with _temper_before(plan_for(model)) as served:
        yield served


@contextmanager
def temper_with_leaking_llama_server(folder: Path) -> Iterator[Served]:
    """Run Temper and a llama-server whose model writes calls as text, with a large window."""
    model = folder / "leaking.gguf"
    leaking = _scripts(scripts.run_on_call)
    template = chat_template()
    build_scripted_model(model, leaking, context_tokens=AGENT_TOKENS, template=template)
    with _temper_before(plan_for(model, context_tokens=AGENT_TOKENS, slots=1)) as served:
        yield replace(served, leaks=True)


@contextmanager
def _temper_before(plan: LaunchPlan) -> Iterator[Served]:
    with serving(plan) as server:
        key = {"TEMPER_BACKEND__API_KEY": server.api_key}
        with running_temper("--backend-url", server.base_url, environment=key) as url:
            yield Served(f"{url}/v1", lambda: _read_counter(url, "temper_attempts_total"))


def _read_counter(url: str, name: str) -> int:
    """Read the total of a counter from Temper's metrics."""
    text = httpx.get(f"{url}/metrics", trust_env=False, timeout=TIMEOUT_SECONDS).text
    samples = (
        sample for family in text_string_to_metric_families(text) for sample in family.samples
    )
    return sum(int(sample.value) for sample in samples if sample.name == name)


def _scripts(write: Callable[[str, str], str] = scripts.call) -> dict[str, str | Sequence[str]]:
    """Return the script of each reply; `write` writes its calls."""
    replies = {word: _as_script(reply, write) for word, reply in SAID.items()}
    return {"default": _NOTHING.text, **replies}


def _as_script(reply: Reply, write: Callable[[str, str], str]) -> str:
    calls = (write(call.arguments, call.name) for call in reply.calls)
    return "\n".join(filter(None, (reply.text, *calls)))


class _RightBackend:
    """An OpenAI-compatible server with a model that makes no errors."""

    def __init__(self, silence: float = 0.0, window: int = 0) -> None:
        self.generations = 0
        self.refusals = 0
        self._silence = silence
        self._window = window
        chat = Route("/v1/chat/completions", self._chat, methods=["POST"])
        self.app = Starlette(routes=[chat, Route("/v1/models", self._models)])

    async def properties(self, _: Request) -> Response:
        """Return the properties of llama-server for a model without a projector."""
        window = {"n_ctx": AGENT_TOKENS}
        blind = {"vision": False, "audio": False}
        properties = {
            "model_alias": MODEL,
            "default_generation_settings": window,
            "modalities": blind,
        }
        return JSONResponse({**properties, "total_slots": 4})

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _chat(self, request: Request) -> Response:
        self.generations += 1
        body = json.parse(await request.body())
        assert isinstance(body, dict)
        tokens = len(json.dump(body)) // _BYTES_PER_TOKEN
        if 0 < self._window < tokens:
            self.refusals += 1
            problem: JsonObject = {"code": 400, "type": "exceed_context_size_error"}
            problem |= {"message": "the request exceeds the available context size"}
            problem |= {"n_prompt_tokens": tokens, "n_ctx": self._window}
            return JSONResponse({"error": problem}, 400)
        reply = reply_to(body["messages"], f"{self.generations}")
        if not body.get("stream"):
            return Response(whole(reply), media_type="application/json")
        rendered = streamed(reply, has_usage=bool(body.get("stream_options")))
        begin, *rest = (
            *rendered.start,
            *(token.before for token in rendered.tokens),
            *rendered.end,
        )
        is_silent = _SILENT in json.dump_text(body["messages"])

        async def events() -> AsyncIterator[bytes]:
            yield begin
            await asyncio.sleep(self._silence if is_silent else 0)
            # every reply is rendered with the same number of prompt tokens
            yield b"".join(rest).replace(b'"prompt_tokens":1000', b'"prompt_tokens":%d' % tokens)

        return StreamingResponse(events(), media_type="text/event-stream")


def reply_to(messages: JsonValue, number: str) -> Reply:
    prompt = json.dump_text(messages)
    said_to = {**SAID, **ASKED_OF_THE_MOCK}
    position, trigger = max((prompt.rfind(trigger), trigger) for trigger in said_to)
    reply = said_to[trigger] if position >= 0 else _NOTHING
    # the model has already returned this reply, and Temper has rejected it
    is_again = bool(reply.text) and json.dump_text(reply.text)[1:-1] in prompt[position:]
    answer = _AFTER_NUDGE if is_again and not reply.calls else reply
    return Reply(answer.text, answer.calls, number)
