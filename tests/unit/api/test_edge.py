import asyncio
from collections.abc import Callable, Mapping

import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.api.client_connection import WIRE, ClientConnection, Endpoint
from proxy.api.dialects import all_dialects
from proxy.api.edge import Access, Edge, OpenPaths
from tests.fakes.asgi import HandMadeClient, HandMadeWire
from tests.timeouts import until


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond with the id of the request and the owner of its key."""
    await receive()
    owner = scope["state"].get("owner", "nobody").encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"owner", owner)]})
    await send({"type": "http.response.body", "body": scope["state"]["request_id"].encode()})


def edge(
    app: ASGIApp,
    access: Access | None = None,
    endpoints: Mapping[str, Callable[[], Endpoint]] | None = None,
    paths: OpenPaths | None = None,
) -> Edge:
    """Return an edge that protects an application."""
    application = FastAPI()
    application.build_middleware_stack = lambda: app  # type: ignore[method-assign]
    return Edge(
        application, endpoints or {}, access or Access(), all_dialects(), paths=paths or OpenPaths()
    )


def call(client: HandMadeClient, *keys: str, hosts: frozenset[str] | None = None) -> HandMadeClient:
    access = Access({f"owner of {key}": key for key in keys}, hosts)
    asyncio.run(client.call(edge(echo, access)))
    return client


def test_a_valid_request_id_is_kept_and_echoed() -> None:
    client = call(HandMadeClient(headers={"x-request-id": "a-1.b:C_2"}))
    assert client.answer == b"a-1.b:C_2"
    assert client.answer_headers["x-request-id"] == "a-1.b:C_2"


@pytest.mark.parametrize("sent_id", ["", "a b", "a\nb", "é", "x" * 129])
def test_an_invalid_request_id_is_replaced(sent_id: str) -> None:
    client = call(HandMadeClient(headers={"x-request-id": sent_id}))
    assert client.answer.startswith(b"req_")


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer key"},
        {"authorization": "bearer key"},
        {"x-api-key": "key"},
        {"authorization": "Bearer of-an-account", "x-api-key": "key"},
        {"authorization": "Bearer key", "x-api-key": "of-another-server"},
        {"authorization": "Basic a2V5", "x-api-key": "key"},
    ],
)
def test_a_valid_key_in_either_header_is_accepted(headers: dict[str, str]) -> None:
    assert call(HandMadeClient(headers=headers), "key").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "key"},
        {"authorization": "Bearer k"},
        {"x-api-key": "ké"},
        {"authorization": "Bearer k", "x-api-key": "y"},
    ],
)
def test_wrong_or_missing_credentials_are_refused(headers: dict[str, str]) -> None:
    client = call(HandMadeClient(headers=headers), "key")
    assert client.status == 401
    assert (b"not valid" in client.answer) is bool(headers)
    assert client.answer_headers["x-request-id"].startswith("req_")


def test_a_health_check_needs_no_key() -> None:
    assert call(HandMadeClient(path="/healthz"), "key").status == 200


@pytest.mark.parametrize(("host", "status"), [("ours", 200), ("theirs", 403)])
def test_public_routes_check_the_host_but_no_key(host: str, status: int) -> None:
    client = HandMadeClient(path="/page", headers={"host": host})
    access = Access({"us": "key"}, frozenset({"ours"}))
    paths = OpenPaths(public=frozenset({"/page"}))
    asyncio.run(client.call(edge(echo, access, paths=paths)))
    assert client.status == status
    if status == 200:
        assert client.answer_headers["owner"] == ""


def test_a_lifespan_scope_reaches_the_application_without_a_key() -> None:
    passed: list[str] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        passed.append(scope["type"])

    client = HandMadeClient()
    asyncio.run(
        edge(note, Access({"us": "key"}))({"type": "lifespan"}, client.receive, client.send)
    )
    assert passed == ["lifespan"]


def test_each_of_several_keys_identifies_its_owner() -> None:
    client = call(HandMadeClient(headers={"x-api-key": "second"}), "first", "second")
    assert client.answer_headers["owner"] == "owner of second"
    assert call(HandMadeClient()).answer_headers["owner"] == ""


NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8367", "127.0.0.1:1", "[::1]", "[::1]:8367", "::1", "localhost \t"],
)
def test_requests_to_allowed_hosts_are_accepted(host: str) -> None:
    assert call(HandMadeClient(headers={"host": host}), hosts=NAMES).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8367",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "localhost\xa0",
    ],
)
def test_requests_to_other_hosts_get_403(host: str) -> None:
    client = call(HandMadeClient(headers={"host": host}), hosts=NAMES)
    assert client.status == 403
    assert b"server.allowed_hosts" in client.answer


def test_a_health_check_may_use_any_host_name() -> None:
    client = HandMadeClient(path="/healthz", headers={"host": "10.1.2.3"})
    assert call(client, hosts=NAMES).status == 200


class NamedEndpoint:
    def __init__(self, name: bytes) -> None:
        self._name = name

    async def __call__(self, connection: ClientConnection) -> None:
        await connection.receive()
        await connection.respond(200, {}, self._name)


async def app_named(scope: Scope, receive: Receive, send: Send) -> None:
    await NamedEndpoint(b"app")(ClientConnection(scope, receive, send))


@pytest.mark.parametrize(
    ("method", "path", "headers", "answer"),
    [
        ("POST", "/chat", {}, b"chat"),
        ("GET", "/chat", {}, b"app"),
        ("POST", "/other", {}, b"app"),
        ("POST", "/chat", {"idempotency-key": "k"}, b"repeatable"),
        ("GET", "/chat", {"idempotency-key": "k"}, b"app"),
        ("POST", "/other", {"idempotency-key": "k"}, b"app"),
        ("POST", "/embeddings", {"idempotency-key": "k"}, b"embeddings"),
    ],
)
def test_the_method_and_the_path_and_the_idempotency_key_select_the_endpoint(
    method: str, path: str, headers: dict[str, str], answer: bytes
) -> None:
    client = HandMadeClient(method=method, path=path, headers=headers)
    endpoints = {
        "/chat": lambda: NamedEndpoint(b"chat"),
        "/embeddings": lambda: NamedEndpoint(b"embeddings"),
    }
    served = edge(app_named, endpoints=endpoints)
    served.repeatable = {"/chat": lambda: NamedEndpoint(b"repeatable")}
    asyncio.run(client.call(served))
    assert client.answer == answer


def test_an_endpoint_is_found_below_a_mount_path() -> None:
    client = HandMadeClient(method="POST", path="/temper/chat")
    served = edge(app_named, endpoints={"/chat": lambda: NamedEndpoint(b"chat")})
    scope = {**client.scope, "root_path": "/temper"}
    asyncio.run(served(scope, client.receive, client.send))
    assert client.answer == b"chat"


async def wait_forever() -> None:
    await asyncio.Event().wait()


async def work_forever(connection: ClientConnection) -> None:
    await connection.receive()
    await connection.while_connected(wait_forever())


async def respond_and_work(connection: ClientConnection) -> None:
    await connection.start(200, {})
    await connection.write(b"so ")
    await work_forever(connection)


async def cancel_after_grace(
    client: HandMadeClient, endpoint: Endpoint, begun: Callable[[], bool], *, is_own: bool = True
) -> None:
    """Call the edge, and cancel it as a server does after the grace period of a shutdown."""
    extensions = {WIRE: {"wire": HandMadeWire()}} if is_own else {}
    scope = {**client.scope, "extensions": extensions}
    served = edge(app_named, endpoints={"/": lambda: endpoint})
    serving = asyncio.create_task(served(scope, client.receive, client.send))
    await until(begun)
    serving.cancel()
    await serving


def test_a_request_without_a_response_gets_503_when_the_server_stops() -> None:
    client = HandMadeClient(method="POST")
    asyncio.run(cancel_after_grace(client, work_forever, lambda: client.has_sent))
    assert client.status == 503
    assert client.answer_headers["retry-after"]
    assert b"server_stopping" in client.answer


def test_after_a_started_response_a_stopping_server_sends_no_error() -> None:
    client = HandMadeClient(method="POST")
    asyncio.run(cancel_after_grace(client, respond_and_work, lambda: len(client.got) == 2))
    assert (client.status, client.answer) == (200, b"so ")


def test_a_cancellation_by_another_server_is_raised_without_a_response() -> None:
    client = HandMadeClient(method="POST")
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel_after_grace(client, work_forever, lambda: client.has_sent, is_own=False))
    assert client.got == []


def test_an_internal_error_is_reported_to_the_client_and_raised_to_the_server() -> None:
    async def broken(connection: ClientConnection) -> None:
        raise ZeroDivisionError

    client = HandMadeClient(method="POST")
    with pytest.raises(ZeroDivisionError):
        asyncio.run(client.call(edge(app_named, endpoints={"/": lambda: broken})))
    assert client.status == 500
