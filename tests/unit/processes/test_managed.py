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


class ManagedScenario:
    """A managed backend and its fake server, whose status and responses the test sets."""

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

    def set_responses(self, address: ServerAddress, *, ready: bool = True) -> None:
        chat = self.routes.post(f"{address.base_url}/v1/chat/completions")
        chat.mock(return_value=httpx.Response(200, content=HELLO))
        health = httpx.Response(200 if ready else 503)
        self.routes.get(f"{address.base_url}/health").mock(return_value=health)

    def fail_with(self, error: Exception) -> None:
        self.routes.post(f"{FIRST.base_url}/v1/chat/completions").mock(side_effect=error)

    async def send(self) -> list[ReplyEvent]:
        async with aclosing(self.backend.stream(upstream_request(), {})) as events:
            return [event async for batch in events for event in batch]


async def error_of(scenario: ManagedScenario) -> BackendUnavailable:
    with pytest.raises(BackendUnavailable) as raised:
        await scenario.send()
    return raised.value


async def test_a_request_waits_for_the_server_and_is_sent_to_its_current_address() -> None:
    scenario = ManagedScenario(STARTING)
    scenario.set_responses(FIRST)
    scenario.set_responses(SECOND)
    request = asyncio.create_task(scenario.send())
    await asyncio.sleep(0)
    scenario.server.note(READY)
    assert (await request)[1:] == [TextDelta("Hello"), ReplyFinished("stop")]
    await scenario.send()
    assert scenario.backend.address == FIRST
    scenario.server.note(ServerStatus(RestartState.READY, address=SECOND))
    await scenario.send()
    assert scenario.connected == [FIRST.base_url, SECOND.base_url]
    assert scenario.backend.address == SECOND
    assert scenario.backend.name == "llama-server/qwen"
    await scenario.backend.close()


async def test_the_error_has_loading_set_if_the_start_takes_longer_than_load_wait() -> None:
    error = await error_of(ManagedScenario(STARTING, load_wait=0.0))
    assert (error.loading, error.is_managed) == (True, False)


async def test_a_request_waits_until_the_server_has_restarted() -> None:
    scenario = ManagedScenario(WAITING)
    scenario.set_responses(SECOND)
    request = asyncio.create_task(scenario.send())
    await asyncio.sleep(0)
    scenario.server.note(STARTING)
    await asyncio.sleep(0)
    scenario.server.note(ServerStatus(RestartState.READY, address=SECOND))
    assert (await request)[-1] == ReplyFinished("stop")


async def test_the_error_has_retry_after_if_a_restart_takes_longer_than_load_wait() -> None:
    error = await error_of(ManagedScenario(WAITING, load_wait=0.0))
    assert str(error) == "The backend llama-server/qwen is being restarted: it crashed."
    assert (error.is_managed, error.retry_after) == (True, 2)


async def test_a_request_whose_connection_was_refused_is_sent_again_after_the_restart() -> None:
    scenario = ManagedScenario(READY)
    scenario.set_responses(SECOND)
    back = ServerStatus(RestartState.READY, address=SECOND)

    def refuse(_: httpx.Request) -> httpx.Response:
        asyncio.get_running_loop().call_soon(scenario.server.note, back)  # a little later
        raise httpx.ConnectError("refused")

    scenario.routes.post(f"{FIRST.base_url}/v1/chat/completions").mock(side_effect=refuse)
    assert (await scenario.send())[-1] == ReplyFinished("stop")
    assert scenario.connected == [FIRST.base_url, SECOND.base_url]


@pytest.mark.parametrize(
    ("status", "problem"),
    [(READY, ""), (STARTING, ""), (WAITING, "it crashed"), (DOWN, "it crashed once too often")],
)
def test_problem_is_empty_unless_the_server_waits_for_a_restart_or_is_down(
    status: ServerStatus, problem: str
) -> None:
    assert ManagedScenario(status).backend.problem == problem


@pytest.mark.parametrize("status", [READY, DOWN])
def test_lease_returns_none_if_the_server_is_ready_or_down(status: ServerStatus) -> None:
    assert ManagedScenario(status).backend.lease() is None


@pytest.mark.parametrize(
    ("status", "news", "problem"),
    [
        (STARTING, "loading llama-server/qwen", "is loading its model"),
        (WAITING, "restarting llama-server/qwen", "is being restarted: it crashed"),
    ],
)
async def test_a_lease_of_a_loading_server_is_granted_when_the_server_is_ready(
    status: ServerStatus, news: str, problem: str
) -> None:
    scenario = ManagedScenario(status)
    lease = scenario.backend.lease()
    assert lease is not None
    assert (lease.is_granted, lease.news, lease.timeout_error().problem) == (False, news, problem)
    granted = asyncio.create_task(lease.wait_until_granted())
    await asyncio.sleep(0)
    scenario.server.note(READY)
    await granted
    assert lease.is_granted


async def test_waiting_for_a_lease_fails_when_the_server_goes_down() -> None:
    scenario = ManagedScenario(STARTING)
    lease = scenario.backend.lease()
    assert lease is not None
    scenario.server.note(DOWN)
    with pytest.raises(BackendUnavailable, match="once too often"):
        await lease.wait_until_granted()


async def test_a_connection_error_is_raised_if_the_server_has_not_exited() -> None:
    scenario = ManagedScenario(READY, notice_wait=0.0)
    scenario.fail_with(httpx.ConnectError("too many open files"))
    assert "cannot be reached (too many open files)" in str(await error_of(scenario))


async def test_a_request_to_a_down_server_fails_with_the_reason() -> None:
    error = await error_of(ManagedScenario(DOWN))
    assert str(error) == "The backend llama-server/qwen is down: it crashed once too often."
    assert (error.is_managed, error.retry_after) == (True, None)


@pytest.mark.parametrize(
    ("status", "ending", "retry_after"),
    [
        (READY, "closed the connection unexpectedly; it is being restarted.", 1),
        (WAITING, "closed the connection unexpectedly; it is being restarted.", 2),
        (DOWN, "and will not be restarted: it crashed once too often.", None),
    ],
)
async def test_the_error_for_a_crash_says_whether_the_server_is_restarted(
    status: ServerStatus, ending: str, retry_after: int | None
) -> None:
    scenario = ManagedScenario(READY)

    def crash(_: httpx.Request) -> httpx.Response:
        scenario.server.note(status)
        raise httpx.ReadError("gone")

    scenario.routes.post(f"{FIRST.base_url}/v1/chat/completions").mock(side_effect=crash)
    error = await error_of(scenario)
    assert str(error).endswith(ending)
    assert (error.is_managed, error.retry_after) == (True, retry_after)


async def test_a_timeout_and_a_503_for_loading_are_not_reported_as_a_crash() -> None:
    scenario = ManagedScenario(READY)
    scenario.fail_with(httpx.ReadTimeout("slow"))
    with pytest.raises(BackendTimedOut):
        await scenario.send()
    loading_scenario = ManagedScenario(READY, load_wait=0.0)
    loading = httpx.Response(503, json={"error": {"type": "unavailable_error", "code": 503}})
    loading_scenario.routes.post(f"{FIRST.base_url}/v1/chat/completions").mock(return_value=loading)
    assert (await error_of(loading_scenario)).loading


@pytest.mark.parametrize("status", [ServerStatus(), STARTING, WAITING, DOWN])
async def test_describe_returns_the_planned_description_while_the_server_is_not_ready(
    status: ServerStatus,
) -> None:
    scenario = ManagedScenario(status)
    description = await scenario.backend.describe("any")
    assert description.is_provisional
    assert (description.names, description.slots, description.window) == (PLANNED.names, 2, 8192)
    assert await scenario.backend.models() == (BackendModel("qwen", {}),)
    assert await scenario.backend.count(upstream_request(), {}) is None
    assert await scenario.backend.count_texts(["a"], {}) is None
    assert scenario.connected == []
    await scenario.backend.close()


async def test_describe_returns_the_reported_description_when_the_server_is_ready() -> None:
    scenario = ManagedScenario(READY)
    root, routes = FIRST.base_url, scenario.routes
    properties = {
        "model_alias": "real",
        "total_slots": 4,
        "default_generation_settings": {"n_ctx": 4096},
    }
    routes.get(f"{root}/props").mock(return_value=httpx.Response(200, json=properties))
    models_document = {"data": [{"id": "real"}]}
    routes.get(f"{root}/v1/models").mock(return_value=httpx.Response(200, json=models_document))
    count_response = httpx.Response(200, json={"input_tokens": 7})
    routes.post(f"{root}/v1/chat/completions/input_tokens").mock(return_value=count_response)
    tokens = httpx.Response(200, json={"tokens": [1, 2]})
    tokenize_route = routes.post(f"{root}/tokenize").mock(return_value=tokens)
    description = await scenario.backend.describe("any")
    assert (description.names, description.slots, description.window) == (("real",), 4, 4096)
    assert not description.is_provisional
    assert await scenario.backend.models() == (BackendModel("real", {"id": "real"}),)
    assert await scenario.backend.count(upstream_request(), {}) == 7
    await scenario.backend.count_texts(["a"], {})
    assert tokenize_route.called


async def test_describe_returns_the_planned_description_if_the_server_is_unreachable() -> None:
    scenario = ManagedScenario(READY)
    scenario.routes.get(f"{FIRST.base_url}/props").mock(side_effect=httpx.ConnectError("gone"))
    scenario.routes.get(f"{FIRST.base_url}/v1/models").mock(side_effect=httpx.ConnectError("gone"))
    assert (await scenario.backend.describe("any")).names == PLANNED.names
    assert await scenario.backend.models() == (BackendModel("qwen", {}),)


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
async def test_health_follows_from_the_restart_state_and_the_health_response(
    status: ServerStatus, answers_health: bool, expected: Health
) -> None:
    scenario = ManagedScenario(status)
    scenario.set_responses(FIRST, ready=answers_health)
    assert await scenario.backend.health() is expected


async def test_forwarded_requests_are_sent_to_the_current_address() -> None:
    scenario = ManagedScenario(READY, notice_wait=0.0)
    route = scenario.routes.post(f"{FIRST.base_url}/v1/embeddings").respond(content=b"{}")
    assert await relayed_by(scenario.backend) == b"{}"
    assert route.calls.last.request.headers["authorization"] == "Bearer key one"
    route.mock(side_effect=httpx.ConnectError("refused"))
    with pytest.raises(BackendUnavailable, match="it is being restarted"):
        await relayed_by(scenario.backend)


def test_a_server_is_down_only_after_the_supervisor_gave_up() -> None:
    for status, is_down in ((STARTING, False), (WAITING, False), (READY, False), (DOWN, True)):
        assert ManagedScenario(status).backend.is_down is is_down
