"""A model that does everything right in an agent's loop, as a mock backend and as a real server.

What it says is chosen by the last trigger in the prompt: words in the user's message, or in the
result of a tool. So a loop that ends as it should has carried every call and every result.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
from anyio.from_thread import start_blocking_portal
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from benchmarks.healthy.replies import Call, Reply, streamed, whole
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.demo.chat_template import chat_template
from proxy.demo.scripted_model import build_scripted_model
from proxy.processes.launch import LaunchPlan
from tests.fakes import scripts
from tests.fakes.command import running_temper
from tests.fakes.llama import plan_for, serving
from tests.fakes.sockets import listening

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

# a coding agent runs `cat` with the shell tool of this name and tells what it printed
CODE_WORD = "ZEBRA-4711"
CODE_ANSWER = f"The code word is {CODE_WORD}."
CODE_GENERATIONS = 2
AGENT_TOKENS = 131_072  # their first request has 50 kB, and a token here is hardly more than a byte
_FACTS = '{"city": "Paris", "country": "France"}'


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
    # an answer in a form
    "[[facts]]": Reply(_FACTS),
    "[[call Fact]]": Reply(calls=(Call("Fact", _FACTS),)),
    "[[call final_result]]": Reply(calls=(Call("final_result", _FACTS),)),
    # tools first, then an answer in a form: by a call, or as text
    "[[Bern]]": Reply(calls=(_call("get_weather", city="Bern"),)),
    WEATHER["Bern"]: Reply(calls=(Call("final_result", _FACTS),)),
    "[[Graz]]": Reply(calls=(_call("get_weather", city="Graz"),)),
    WEATHER["Graz"]: Reply(_FACTS),
}
_NOTHING = Reply("There is nothing to say about that.")
_OBEDIENT = Reply(calls=(_call("get_time"),))  # what a good model does when it is told to call


@dataclass
class Tools:
    """The tools of a client, and what they were called with."""

    called: list[tuple[str, str]]

    def get_weather(self, city: str) -> str:
        """Tell the weather in a city."""
        self.called.append(("get_weather", city))
        return WEATHER[city]

    def get_time(self) -> str:
        """Tell the time."""
        self.called.append(("get_time", ""))
        return TIME


@dataclass(frozen=True)
class Served:
    """A server before a model, mostly Temper; `generations` counts what the model was asked for.

    With `leaks` the calls of the model come as text.
    """

    url: str
    generations: Callable[[], int]
    leaks: bool = False

    @property
    def rescued_calls(self) -> int:
        """How many calls were text."""
        return _counted(self.url.removesuffix("/v1"), "temper_rescued_calls_total")


@contextmanager
def before_mock() -> Iterator[Served]:
    """Run Temper before a backend of our own."""
    with (
        right_backend() as backend,
        running_temper("--backend-url", backend.url, environment={}) as url,
    ):
        yield replace(backend, url=f"{url}/v1")


@contextmanager
def right_backend() -> Iterator[Served]:
    """Run a backend of our own, whose model does everything right."""
    backend = _RightBackend()
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(listening(backend.app)) as server,
    ):
        yield Served(server.url, lambda: backend.generations)


@contextmanager
def before_llama_server(folder: Path) -> Iterator[Served]:
    """Run Temper before a real llama-server, whose model is written into a folder."""
    model = folder / "loops.gguf"
    build_scripted_model(model, _scripts(), template=chat_template())
    with _before(plan_for(model)) as served:
        yield served


@contextmanager
def before_leaking_llama_server(folder: Path) -> Iterator[Served]:
    """Do so with a model that writes its calls as text, and with a window for coding agents."""
    model = folder / "leaking.gguf"
    leaking = _scripts(scripts.run_on_call)
    template = chat_template()
    build_scripted_model(model, leaking, context_tokens=AGENT_TOKENS, template=template)
    with _before(plan_for(model, context_tokens=AGENT_TOKENS, slots=1)) as served:
        yield replace(served, leaks=True)


@contextmanager
def _before(plan: LaunchPlan) -> Iterator[Served]:
    with serving(plan) as server:
        key = {"TEMPER_BACKEND__API_KEY": server.api_key}
        with running_temper("--backend-url", server.base_url, environment=key) as url:
            yield Served(f"{url}/v1", lambda: _counted(url, "temper_attempts_total"))


def _counted(url: str, name: str) -> int:
    """Read from Temper's metrics how many of something there were."""
    text = httpx.get(f"{url}/metrics", trust_env=False).text
    samples = (one for family in text_string_to_metric_families(text) for one in family.samples)
    return sum(int(one.value) for one in samples if one.name == name)


def _scripts(write: Callable[[str, str], str] = scripts.call) -> dict[str, str | Sequence[str]]:
    """Write what is said as a model writes it."""
    said = {word: _written(reply, write) for word, reply in SAID.items()}
    return {"default": _NOTHING.text, **said}


def _written(reply: Reply, write: Callable[[str, str], str]) -> str:
    calls = (write(call.arguments, call.name) for call in reply.calls)
    return "\n".join(filter(None, (reply.text, *calls)))


class _RightBackend:
    """An OpenAI-compatible server whose model does everything right, and obeys."""

    def __init__(self) -> None:
        self.generations = 0
        chat = Route("/v1/chat/completions", self._chat, methods=["POST"])
        self.app = Starlette(routes=[chat, Route("/v1/models", self._models)])

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _chat(self, request: Request) -> Response:
        self.generations += 1
        body = json.parse(await request.body())
        assert isinstance(body, dict)
        reply = _reply_to(body["messages"], f"{self.generations}")
        if not body.get("stream"):
            return Response(whole(reply), media_type="application/json")
        rendered = streamed(reply, has_usage=bool(body.get("stream_options")))
        events = (*rendered.start, *(event.before for event in rendered.tokens), *rendered.end)
        return StreamingResponse(iter(events), media_type="text/event-stream")


def _reply_to(messages: JsonValue, number: str) -> Reply:
    prompt = json.dump_text(messages)
    place, trigger = max((prompt.rfind(trigger), trigger) for trigger in SAID)
    reply = SAID[trigger] if place >= 0 else _NOTHING
    # the model has said so already, and was not content with it
    is_again = bool(reply.text) and json.dump_text(reply.text)[1:-1] in prompt[place:]
    said = _OBEDIENT if is_again and not reply.calls else reply
    return Reply(said.text, said.calls, number)
