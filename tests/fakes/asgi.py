"""ASGI by hand: a client that sends the messages of a test and stores the responses."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Scope

from proxy.api.client_connection import ClientConnection, Endpoint
from proxy.api.edge import serve


@dataclass
class HandMadeClient:
    """One connection, open until `leaves` is set."""

    body: bytes = b""
    method: str = "GET"
    path: str = "/"
    headers: dict[str, str] = field(default_factory=dict)
    owner: str = ""
    leaves: asyncio.Event = field(default_factory=asyncio.Event)
    got: list[Message] = field(default_factory=list)
    has_sent: bool = False

    @property
    def _sent(self) -> dict[str, str]:
        typed = {"content-type": "application/json"} if self.method == "POST" else {}
        return {**typed, **self.headers}

    @property
    def scope(self) -> Scope:
        return {
            "type": "http",
            "method": self.method,
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "server": ("127.0.0.1", 80),
            "headers": [(name.encode(), value.encode()) for name, value in self._sent.items()],
            "state": {"request_id": "req_test", "owner": self.owner},
        }

    async def receive(self) -> Message:
        if not self.has_sent:
            self.has_sent = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.got.append(message)

    async def call(self, app: ASGIApp) -> None:
        await app(self.scope, self.receive, self.send)

    @property
    def connection(self) -> ClientConnection:
        return ClientConnection(self.scope, self.receive, self.send)

    async def ask(self, endpoint: Endpoint) -> None:
        await serve(endpoint, self.connection)

    @property
    def status(self) -> int:
        return int(self.got[0]["status"])

    @property
    def answer_headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.got[0]["headers"]}

    @property
    def answer(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.got[1:])


@dataclass
class HandMadeWire:
    """The ASGI extension of Temper's own server, for a client that disconnects on command."""

    is_writable: bool = False
    is_gone: bool = False
    has_whole_body: bool = False
    sent: list[bytes] = field(default_factory=list)
    on_leave: Callable[[], None] | None = None

    def watch(self, on_leave: Callable[[], None] | None) -> None:
        self.on_leave = on_leave

    @property
    def is_watched(self) -> bool:
        return self.on_leave is not None

    def leave(self) -> None:
        assert self.on_leave is not None
        self.on_leave()

    def cork(self) -> None:
        """Do nothing, so that a test receives each message separately."""

    def uncork(self) -> None:
        """Do nothing, because nothing is corked."""

    def write(self, body: bytes) -> None:
        self.sent.append(body)


def endpoint_of(app: ASGIApp) -> Endpoint:
    """Return an ASGI application as an `Endpoint` of the edge."""

    async def answer(connection: ClientConnection) -> None:
        await app(connection.scope, connection.receive, connection.send)

    return answer
