import asyncio
from contextlib import aclosing

import httpx
import pytest

from proxy.backends.client import Backend, Description, Health
from proxy.backends.detected import DetectedBackend
from proxy.backends.detection import Kind
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import ReplyFinished
from proxy.errors import BackendUnavailable
from tests.fakes.backend import ScriptedBackend
from tests.fakes.passages import PASSAGE, relayed_by
from tests.fakes.questions import question

LLAMA: JsonObject = {"data": [{"id": "m", "owned_by": "llamacpp"}]}
VLLM: JsonObject = {"data": [{"id": "m", "owned_by": "vllm"}]}


class Place:
    """An address where something else can be put, with a scripted adapter for each kind."""

    def __init__(self, served: JsonObject | type[httpx.HTTPError]) -> None:
        self.served = served
        self.made: list[Kind] = []
        end = ReplyFinished("stop")
        self.adapters = {
            kind: ScriptedBackend([[end], [end]], counts=[7], name=kind.value) for kind in Kind
        }
        transport = httpx.MockTransport(self.answer)
        connection = BackendClient("http://host", transport=transport)
        self.backend = DetectedBackend(connection, self.adapter_for)

    def answer(self, request: httpx.Request) -> httpx.Response:
        if not isinstance(self.served, dict):
            raise self.served("no")
        is_list = request.url.path == "/v1/models"
        return httpx.Response(200, json=self.served) if is_list else httpx.Response(404)

    def adapter_for(self, kind: Kind) -> Backend:
        self.made.append(kind)
        return self.adapters[kind]

    async def ask(self) -> None:
        async with aclosing(self.backend.ask(question(), {})) as reply:
            async for _ in reply:
                pass


@pytest.mark.parametrize(
    ("served", "kind"), [(LLAMA, Kind.LLAMA_SERVER), (VLLM, Kind.OPENAI), ({}, Kind.OPENAI)]
)
def test_the_first_question_finds_out_whom_it_is_put_to(served: JsonObject, kind: Kind) -> None:
    async def scene() -> Place:
        place = Place(served)
        await place.ask()
        await place.ask()
        return place

    place = asyncio.run(scene())
    assert place.made == [kind]
    assert len(place.adapters[kind].questions) == 2
    assert place.backend.name == "http://host"


@pytest.mark.parametrize(("served", "warnings"), [(LLAMA, 0), (VLLM, 0), ({}, 1)])
def test_who_does_not_answer_like_a_server_for_models_is_warned_of_once(
    served: JsonObject, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        place = Place(served)
        await place.ask()
        await place.backend.describe("m")

    asyncio.run(scene())
    said = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert len(said) == warnings
    assert all("http://host lists no models" in one for one in said)


def test_whoever_is_not_there_yet_is_unavailable_and_described_for_now() -> None:
    async def scene() -> None:
        place = Place(httpx.ConnectError)
        assert await place.backend.describe("m") == Description(("m",), is_provisional=True)
        assert await place.backend.health() is Health.UNREACHABLE
        assert await place.backend.count(question(), {}) is None
        assert await place.backend.count_texts(["a"], {}) is None
        with pytest.raises(BackendUnavailable):
            await place.ask()
        place.served = LLAMA
        await place.ask()
        assert place.made == [Kind.LLAMA_SERVER]
        assert await place.backend.health() is Health.READY
        assert await place.backend.count(question(), {}) == 7
        assert await place.backend.count_texts(["a b"], {}) == (2,)
        assert [model.id for model in await place.backend.models()] == ["one"]

    asyncio.run(scene())


def test_whoever_is_too_busy_to_say_what_it_is_is_asked_all_the_same() -> None:
    async def scene() -> Place:
        place = Place(httpx.ReadTimeout)
        await place.ask()
        place.served = LLAMA
        await place.ask()
        return place

    assert asyncio.run(scene()).made == [Kind.OPENAI, Kind.LLAMA_SERVER]


def test_what_is_put_in_its_place_is_recognised() -> None:
    async def scene() -> Place:
        place = Place(LLAMA)
        await place.backend.describe("m")
        place.served = VLLM
        await place.backend.describe("m")
        place.served = {}
        await place.backend.describe("m")
        await place.ask()
        return place

    place = asyncio.run(scene())
    assert place.made == [Kind.LLAMA_SERVER, Kind.OPENAI]
    assert len(place.adapters[Kind.OPENAI].questions) == 1


def test_whoever_is_gone_for_a_moment_stays_what_it_was() -> None:
    async def scene() -> Place:
        place = Place(LLAMA)
        await place.backend.describe("m")
        place.served = httpx.ConnectError
        await place.backend.describe("m")
        await place.backend.close()
        return place

    assert asyncio.run(scene()).made == [Kind.LLAMA_SERVER]


def test_what_is_passed_on_goes_to_whom_it_was_recognised_as() -> None:
    async def scene() -> list[bytes]:
        place = Place(LLAMA)
        place.adapters[Kind.LLAMA_SERVER].pieces = [b"[", b"]"]
        assert await relayed_by(place.backend) == b"[]"
        return [one.body() for one in place.adapters[Kind.LLAMA_SERVER].passages]

    assert asyncio.run(scene()) == [PASSAGE.body()]
