import asyncio
from contextlib import aclosing
from typing import TypeVar

import httpx
import pytest
import respx

from proxy.backends.client import BackendModel, Description, Health
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation.replies import ReplyEvent, ReplyFinished, TextDelta
from proxy.errors import BackendTimedOut, BackendUnavailable
from proxy.processes.managed import ManagedBackend
from proxy.processes.process import ServerAddress
from proxy.processes.restarts import RestartState
from proxy.processes.supervisor import RemoteStatus, ServerStatus
from tests.fakes.mocked_pool import MockedPool
from tests.fakes.passages import relayed_by
from tests.fakes.upstream_requests import HELLO, upstream_request

FIRST = ServerAddress("http://first", "key one")
SECOND = ServerAddress("http://second", "key two")
PLANNED = Description(("qwen", "qwen.gguf"), "qwen3", "a template", slots=2, window=8192)
READY = ServerStatus(RestartState.READY, address=FIRST)
STARTING = ServerStatus(RestartState.STARTING, reason="it crashed")
WAITING = ServerStatus(RestartState.WAITING, reason="it crashed", retry_after=1.5)
DOWN = ServerStatus(RestartState.DOWN, reason="it crashed once too often")

Result = TypeVar("Result")


class Scene:
    """A backend over a server; the test sets its status and answers."""

    def __init__(
        self, status: ServerStatus, load_wait: float = 30.0, notice_wait: float = 30.0
    ) -> None:
        self.server = RemoteStatus("llama-server/qwen")
        self.server.note(status)
        self.routes = respx.MockRouter(assert_all_called=False)
        self.connected: list[str] = []
        self.backend = ManagedBackend(
            self.server, PLANNED, self._connect, load_wait=load_wait, notice_wait=notice_wait
        )

    def _connect(self, address: ServerAddress) -> LlamaServer:
        self.connected.append(address.base_url)
        wire = httpx.MockTransport(self.routes.async_handler)
        return LlamaServer(BackendClient(address.base_url, address.api_key, pool=MockedPool(wire)))

    def answers(self, address: ServerAddress, *, ready: bool = True) -> None:
        chat = self.routes.post(f"{address.base_url}/v1/chat/completions")
        chat.mock(return_value=httpx.Response(200, content=HELLO))
        health = httpx.Response(200 if ready else 503)
        self.routes.get(f"{address.base_url}/health").mock(return_value=health)

    def breaks_off(self, error: Exception) -> None:
        self.routes.post(f"{FIRST.base_url}/v1/chat/completions").mock(side_effect=error)

    async def ask(self) -> list[ReplyEvent]:
        async with aclosing(self.backend.stream(upstream_request(), {})) as events:
            return [event async for batch in events for event in batch]


async def refusal(scene: Scene) -> BackendUnavailable:
    with pytest.raises(BackendUnavailable) as raised:
        await scene.ask()
    return raised.value


async def test_a_request_waits_for_the_start_and_is_sent_to_the_current_address() -> None:
    scene = Scene(STARTING)
    scene.answers(FIRST)
    scene.answers(SECOND)
    request = asyncio.create_task(scene.ask())
    await asyncio.sleep(0)
    scene.server.note(READY)
    assert (await request)[1:] == [TextDelta("Hello"), ReplyFinished("stop")]
    await scene.ask()
    assert scene.backend.address == FIRST
    scene.server.note(ServerStatus(RestartState.READY, address=SECOND))
    await scene.ask()
    assert scene.connected == [FIRST.base_url, SECOND.base_url]
    assert scene.backend.address == SECOND
    assert scene.backend.name == "llama-server/qwen"
    await scene.backend.close()


async def test_a_slow_start_is_reported_as_loading() -> None:
    error = await refusal(Scene(STARTING, load_wait=0.0))
    assert (error.loading, error.is_managed) == (True, False)


async def test_a_request_waits_for_a_restart() -> None:
    scene = Scene(WAITING)
    scene.answers(SECOND)
    request = asyncio.create_task(scene.ask())
    await asyncio.sleep(0)
    scene.server.note(STARTING)
    await asyncio.sleep(0)
    scene.server.note(ServerStatus(RestartState.READY, address=SECOND))
    assert (await request)[-1] == ReplyFinished("stop")


async def test_a_slow_restart_is_reported_with_retry_after() -> None:
    error = await refusal(Scene(WAITING, load_wait=0.0))
    assert str(error) == "The backend llama-server/qwen is being restarted: it crashed."
    assert (error.is_managed, error.retry_after) == (True, 2)


async def test_a_request_that_finds_no_server_is_sent_to_the_next_one() -> None:
    scene = Scene(READY)
    scene.answers(SECOND)
    back = ServerStatus(RestartState.READY, address=SECOND)

    def refuse(_: httpx.Request) -> httpx.Response:
        asyncio.get_running_loop().call_soon(scene.server.note, back)  # a little later
        raise httpx.ConnectError("refused")

    scene.routes.post(f"{FIRST.base_url}/v1/chat/completions").mock(side_effect=refuse)
    assert (await scene.ask())[-1] == ReplyFinished("stop")
    assert scene.connected == [FIRST.base_url, SECOND.base_url]


@pytest.mark.parametrize(
    ("status", "problem"),
    [(READY, ""), (STARTING, ""), (WAITING, "it crashed"), (DOWN, "it crashed once too often")],
)
def test_a_stopped_server_reports_the_reason(status: ServerStatus, problem: str) -> None:
    assert Scene(status).backend.problem == problem


@pytest.mark.parametrize("status", [READY, DOWN])
def test_a_permanent_failure_is_not_waited_for(status: ServerStatus) -> None:
    assert Scene(status).backend.lease() is None


@pytest.mark.parametrize(
    ("status", "news", "problem"),
    [
        (STARTING, "loading llama-server/qwen", "is loading its model"),
        (WAITING, "restarting llama-server/qwen", "is being restarted: it crashed"),
    ],
)
async def test_a_wait_has_a_reason_and_ends_when_the_server_is_ready(
    status: ServerStatus, news: str, problem: str
) -> None:
    scene = Scene(status)
    hold = scene.backend.lease()
    assert hold is not None
    assert (hold.is_granted, hold.news, hold.timeout_error().problem) == (False, news, problem)
    granted = asyncio.create_task(hold.wait_until_granted())
    await asyncio.sleep(0)
    scene.server.note(READY)
    await granted
    assert hold.is_granted


async def test_a_wait_for_a_server_that_stays_down_is_in_vain() -> None:
    scene = Scene(STARTING)
    hold = scene.backend.lease()
    assert hold is not None
    scene.server.note(DOWN)
    with pytest.raises(BackendUnavailable, match="once too often"):
        await hold.wait_until_granted()


async def test_a_server_that_lives_and_cannot_be_reached_is_not_waited_for() -> None:
    scene = Scene(READY, notice_wait=0.0)
    scene.breaks_off(httpx.ConnectError("too many open files"))
    assert "cannot be reached (too many open files)" in str(await refusal(scene))


async def test_a_server_that_stays_down_reports_its_reason() -> None:
    error = await refusal(Scene(DOWN))
    assert str(error) == "The backend llama-server/qwen is down: it crashed once too often."
    assert (error.is_managed, error.retry_after) == (True, None)


@pytest.mark.parametrize(
    ("noticed", "ending", "retry_after"),
    [
        (READY, "closed the connection unexpectedly; it is being restarted.", 1),
        (WAITING, "closed the connection unexpectedly; it is being restarted.", 2),
        (DOWN, "and will not be restarted: it crashed once too often.", None),
    ],
)
async def test_a_crash_during_a_reply_is_explained_even_if_it_is_noticed_later(
    noticed: ServerStatus, ending: str, retry_after: int | None
) -> None:
    scene = Scene(READY)

    def crash(_: httpx.Request) -> httpx.Response:
        scene.server.note(noticed)
        raise httpx.ReadError("gone")

    scene.routes.post(f"{FIRST.base_url}/v1/chat/completions").mock(side_effect=crash)
    error = await refusal(scene)
    assert str(error).endswith(ending)
    assert (error.is_managed, error.retry_after) == (True, retry_after)


async def test_an_unrelated_failure_is_unchanged() -> None:
    scene = Scene(READY)
    scene.breaks_off(httpx.ReadTimeout("slow"))
    with pytest.raises(BackendTimedOut):
        await scene.ask()
    sleeping = Scene(READY, load_wait=0.0)
    loading = httpx.Response(503, json={"error": {"type": "unavailable_error", "code": 503}})
    sleeping.routes.post(f"{FIRST.base_url}/v1/chat/completions").mock(return_value=loading)
    assert (await refusal(sleeping)).loading


@pytest.mark.parametrize("status", [ServerStatus(), STARTING, WAITING, DOWN])
async def test_before_the_server_is_ready_only_the_plan_is_known(
    status: ServerStatus,
) -> None:
    scene = Scene(status)
    described = await scene.backend.describe("any")
    assert described.is_provisional
    assert (described.names, described.slots, described.window) == (PLANNED.names, 2, 8192)
    assert await scene.backend.models() == (BackendModel("qwen", {}),)
    assert await scene.backend.count(upstream_request(), {}) is None
    assert await scene.backend.count_texts(["a"], {}) is None
    assert scene.connected == []
    await scene.backend.close()


async def test_a_ready_server_reports_more() -> None:
    scene = Scene(READY)
    root, routes = FIRST.base_url, scene.routes
    properties = {
        "model_alias": "real",
        "total_slots": 4,
        "default_generation_settings": {"n_ctx": 4096},
    }
    routes.get(f"{root}/props").mock(return_value=httpx.Response(200, json=properties))
    listed = {"data": [{"id": "real"}]}
    routes.get(f"{root}/v1/models").mock(return_value=httpx.Response(200, json=listed))
    counted = httpx.Response(200, json={"input_tokens": 7})
    routes.post(f"{root}/v1/chat/completions/input_tokens").mock(return_value=counted)
    tokens = httpx.Response(200, json={"tokens": [1, 2]})
    asked_tokens = routes.post(f"{root}/tokenize").mock(return_value=tokens)
    described = await scene.backend.describe("any")
    assert (described.names, described.slots, described.window) == (("real",), 4, 4096)
    assert not described.is_provisional
    assert await scene.backend.models() == (BackendModel("real", {"id": "real"}),)
    assert await scene.backend.count(upstream_request(), {}) == 7
    await scene.backend.count_texts(["a"], {})
    assert asked_tokens.called


async def test_a_lost_server_is_described_by_its_plan() -> None:
    scene = Scene(READY)
    scene.routes.get(f"{FIRST.base_url}/props").mock(side_effect=httpx.ConnectError("gone"))
    scene.routes.get(f"{FIRST.base_url}/v1/models").mock(side_effect=httpx.ConnectError("gone"))
    assert (await scene.backend.describe("any")).names == PLANNED.names
    assert await scene.backend.models() == (BackendModel("qwen", {}),)


@pytest.mark.parametrize(
    ("status", "answers_health", "expected"),
    [
        (ServerStatus(), True, Health.LOADING),
        (STARTING, True, Health.LOADING),
        (WAITING, True, Health.LOADING),
        (READY, True, Health.READY),
        (READY, False, Health.LOADING),
        (DOWN, True, Health.UNREACHABLE),
    ],
)
async def test_its_health_follows_from_its_state(
    status: ServerStatus, answers_health: bool, expected: Health
) -> None:
    scene = Scene(status)
    scene.answers(FIRST, ready=answers_health)
    assert await scene.backend.health() is expected


async def test_forwarded_requests_are_sent_to_the_current_address() -> None:
    scene = Scene(READY, notice_wait=0.0)
    route = scene.routes.post(f"{FIRST.base_url}/v1/embeddings").respond(content=b"{}")
    assert await relayed_by(scene.backend) == b"{}"
    assert route.calls.last.request.headers["authorization"] == "Bearer key one"
    route.mock(side_effect=httpx.ConnectError("refused"))
    with pytest.raises(BackendUnavailable, match="it is being restarted"):
        await relayed_by(scene.backend)


def test_a_server_is_lost_only_after_it_was_given_up() -> None:
    for status, is_down in ((STARTING, False), (WAITING, False), (READY, False), (DOWN, True)):
        assert Scene(status).backend.is_down is is_down
