"""F44: a flood of nonsense is read in linear time, and other clients are served meanwhile."""

import asyncio
import time
from dataclasses import dataclass
from itertools import pairwise

import httpx
import pytest

from benchmarks.faults.toxics import STREAM_HEAD, Caller
from proxy.api.app import ServerOptions
from proxy.conversation import json
from proxy.guardrails.offer import TextPolicy
from proxy.inference.plan import Policy
from tests.corpus.floods import FLOODS as ALL_FLOODS
from tests.corpus.floods import measured
from tests.examples import mostly_deep
from tests.fakes import sse
from tests.fakes.answers import Answer, read_answer
from tests.fakes.raw_backend import raw_backend
from tests.fakes.running_proxy import CHAT, plain_transport, request, temper_at
from tests.faults.proxies import TEMPER, before
from tests.faults.requests import asks
from tests.timeouts import TIMEOUT_SECONDS

pytestmark = pytest.mark.fault("F44")

LENGTH = 300_000  # characters
PIECE = 300  # characters per delta; more than a model sends, for a fast test
LEAST_ANSWERS = 50
LONGEST_SILENCE = 0.25  # the longest permitted silence, as a share of the time of the flood
MOST_TRIES = 5
MOST_CONNECTIONS = 8  # the chat, and Temper's lookups of a backend before it
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
ONCE = ServerOptions(policy=Policy(text_policy=TextPolicy.ACCEPT, attempts=1))

# A prefix, and the unit that is repeated after it.
FLOODS = {
    "braces": ("", "{"),
    "angles": ("", "<"),
    "quotation marks": ("", '\\"'),
    "white space": ("", " \n"),
    "code fences": ("", "```json\n"),
    "half tags": ("", "<tool_call"),
    "control tokens": ("", "<|im_end|>"),
    "opened calls": ("", '<tool_call>{"name": '),
    "thoughts": ("<think>", "</thin"),
    "a string": ('<tool_call>{"name": "get_weather", "arguments": {"city": "', "x\\"),
    "a parameter": ("<function=get_weather>\n<parameter=city>\n", "</parameter><"),
    "calls in one list": (
        "<tool_call>[",
        '{"name": "get_weather", "arguments": {"city": "Paris"}},',
    ),
    "calls in a row": ("", 'call:get_weather{city:<|"|>Paris<|"|>}\n'),
    "a list": ('{"name": "get_weather", "arguments": {"city": ', "["),
}


@dataclass(frozen=True)
class Flood:
    """The answer to a flood, and times: its start, each response to another client, its end."""

    answer: Answer
    moments: list[float]

    @property
    def answers(self) -> int:
        """The number of responses to other clients during the flood."""
        return len(self.moments) - 2

    @property
    def longest_silence(self) -> float:
        """The longest time without a response, as a share of the time of the flood."""
        longest = max(after - before for before, after in pairwise(self.moments))
        return longest / (self.moments[-1] - self.moments[0])


async def flood(text: str, *, stream: bool) -> Flood:
    """Flood Temper with a text while another client polls its health."""
    begins = asyncio.Event()

    async def pour(caller: Caller) -> None:
        if CHAT.encode() not in await caller.request():
            await caller.send(NOT_FOUND)
            return
        await caller.send(STREAM_HEAD)
        await begins.wait()
        await caller.send_chunk(sse.START)
        for start in range(0, len(text), PIECE):
            await caller.send_chunk(sse.text(text[start : start + PIECE]))
            await asyncio.sleep(0)  # a real model pauses much longer between two tokens
        await caller.send_chunk(sse.end())
        await caller.send_chunk(b"")

    async with (
        raw_backend(*[pour] * MOST_CONNECTIONS) as backend,
        temper_at(backend.url, serving=ONCE) as proxy,
        httpx.AsyncClient(
            base_url=proxy.server.url, transport=plain_transport(), timeout=TIMEOUT_SECONDS
        ) as other,
    ):
        body = json.dump(request(stream=stream))
        answering = asyncio.create_task(proxy.client.post(CHAT, content=body))
        begins.set()
        moments = await ask_until(answering, other)
        return Flood(read_answer(await answering), moments)


async def ask_until(
    answering: asyncio.Task[httpx.Response], client: httpx.AsyncClient
) -> list[float]:
    """Poll the health until a task is done; return the times of the start and of each response.

    The last response comes at the end of the task. Times are in seconds of CPU work: Temper, the
    backend and both clients share this process.
    """
    clock = time.process_time
    moments = [clock()]
    while not answering.done():
        assert (await client.get("/healthz")).status_code == 200
        moments.append(clock())
    return moments


def is_tolerable(flooded: Flood) -> bool:
    """Return whether a flood has hardly delayed other clients."""
    return flooded.answers >= LEAST_ANSWERS and flooded.longest_silence < LONGEST_SILENCE


@pytest.mark.parametrize(
    ("name", "stream"), mostly_deep([*((flood, True) for flood in FLOODS), ("braces", False)])
)
async def test_other_clients_are_served_while_a_model_sends_a_flood_of_markup(
    name: str, *, stream: bool
) -> None:
    """A busy machine may interrupt the flood, so one good flood of several suffices."""
    beginning, unit = FLOODS[name]
    count = (LENGTH - len(beginning)) // len(unit)
    # each call differs, because Temper stops the generation at copies of a call
    text = beginning + "".join(unit.replace("Paris", f"P{number}") for number in range(count))
    floods: list[Flood] = []
    while not any(map(is_tolerable, floods)) and len(floods) < MOST_TRIES:
        floods.append(await flood(text, stream=stream))
    assert all(flood.answer.is_done for flood in floods)
    assert is_tolerable(floods[-1]), [(flood.answers, flood.longest_silence) for flood in floods]


async def answered_in(subject: str, text: str) -> float:
    """Return how many seconds a request takes when the model replies with this text.

    In this process CPU time is measured; for a peer, only wall time is available.
    """
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    clock = time.process_time if subject == TEMPER else time.monotonic
    async with before(subject, *[sse.says(*pieces)] * MOST_CONNECTIONS) as proxy:
        begun = clock()
        await proxy.ask(asks())
        return clock() - begun


@pytest.mark.parametrize("name", mostly_deep(FLOODS))
async def test_the_time_for_a_flood_of_markup_grows_linearly(*, subject: str, name: str) -> None:
    """A busy machine may interrupt a measurement, so one good measurement of several suffices."""
    beginning, unit = FLOODS[name]
    texts = [beginning + unit * (size // len(unit)) for size in (2 * CHARACTERS, 4 * CHARACTERS)]
    growths: list[float] = []
    while not growths or (min(growths) >= MOST_GROWTH and len(growths) < MOST_TRIES):
        once, twice = [await answered_in(subject, text) for text in texts]
        growths.append(twice / once)
    assert min(growths) < MOST_GROWTH


MOST_GROWTH = 2.5  # twice the text may take at most this many times as long
CHARACTERS, TOKEN = 30_000, 16


@pytest.mark.parametrize("name", mostly_deep(ALL_FLOODS))
def test_the_time_in_which_the_scanner_reads_a_flood_grows_linearly(name: str) -> None:
    """A busy machine may interrupt a measurement, so one good measurement of several suffices."""
    grown = (measured(ALL_FLOODS[name], CHARACTERS, TOKEN) for _ in range(MOST_TRIES))
    assert any(growth < MOST_GROWTH for growth in grown)
