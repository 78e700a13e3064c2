"""What stands before every route: request ids, the API key and the size of bodies."""

import hmac
import re
import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.api.errors import describe
from proxy.errors import InvalidRequest, NotAuthorized, RequestTooLarge

HEALTH_PATHS = ("/healthz", "/readyz", "/health")
_PLAIN_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class Limits:
    """ASGI middleware: names every request and turns away those without the key.

    The id is `x-request-id` as the client sent it, if it is plain, else a new one; it is put into
    `scope["state"]["request_id"]` and into the response. What is in `open_paths` needs no key.
    """

    def __init__(
        self, app: ASGIApp, api_key: str | None, open_paths: tuple[str, ...] = HEALTH_PATHS
    ) -> None:
        self._app = app
        self._api_key = api_key
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        wished = headers.get("x-request-id", "")
        request_id = wished if _PLAIN_ID.fullmatch(wished) else f"req_{secrets.token_hex(12)}"
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        if scope["path"] in self._open_paths or self._is_allowed(headers):
            await self._app(scope, receive, send_with_id)
        else:
            await describe(NotAuthorized()).response()(scope, receive, send_with_id)

    def _is_allowed(self, headers: Headers) -> bool:
        if self._api_key is None:
            return True
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            key = headers.get("x-api-key", "")
        return hmac.compare_digest(key.strip().encode(), self._api_key.encode())


async def read_body(request: Request, limit: int) -> bytes:
    """Read the body of a request; raises `RequestTooLarge` beyond `limit` bytes.

    A declared length is judged before a byte is read. A compressed body is an `InvalidRequest`:
    its size would be known too late. Raises starlette's `ClientDisconnect` if the client leaves.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise InvalidRequest("Send the body uncompressed.", "content-encoding")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise RequestTooLarge(limit)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise RequestTooLarge(limit)
        pieces.append(piece)
    return b"".join(pieces)
