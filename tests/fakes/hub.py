"""A double of a Hugging Face hub, with a storage server at another address.

The members and headers are those that `huggingface_hub` reads.
"""

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from proxy.conversation.json import JsonObject
from tests.fakes.sockets import listening_in_thread

COMMIT = "c0ffee" * 6
TOKEN = "hf_test"


@dataclass
class FakeHub:
    """Serves `files` of the repository `owner/name`; others set faults or log requests."""

    files: dict[str, bytes]
    error: tuple[int, str] | None = None  # status and x-error-code of every response
    is_gated: bool = False
    breaks_after: list[int] = field(default_factory=list)  # bytes of each of the next responses
    is_damaged: bool = False
    ranges: list[str] = field(default_factory=list)  # headers `Range` of the requests for files
    tokens: list[str] = field(default_factory=list)  # tokens that the storage server received
    storage_url: str = ""

    @property
    def hub(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/models/owner/name/revision/main", self.describe),
                Route("/owner/name/resolve/{commit}/{file:path}", self.resolve),
                Route("/{path:path}", self.refuse),
            ]
        )

    @property
    def storage(self) -> Starlette:
        return Starlette(routes=[Route("/{file:path}", self.send)])

    async def describe(self, request: Request) -> Response:
        if self.error is not None:
            return await self.refuse(request)
        listed: list[JsonObject] = [
            {
                "rfilename": name,
                "size": len(content),
                "blobId": "b10b",
                "lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)},
            }
            for name, content in self.files.items()
        ]
        return JSONResponse({"id": "owner/name", "sha": COMMIT, "siblings": listed})

    async def resolve(self, request: Request) -> Response:
        is_known = request.headers.get("authorization") == f"Bearer {TOKEN}"
        if self.is_gated and not is_known:
            return Response("Access is restricted.", 401, {"x-error-code": "GatedRepo"})
        return RedirectResponse(f"{self.storage_url}/{request.path_params['file']}", 302)

    async def send(self, request: Request) -> Response:
        self.tokens.append(request.headers.get("authorization", ""))
        self.ranges.append(wanted := request.headers.get("range", ""))
        content = self.files[request.path_params["file"]]
        start = int(wanted.removeprefix("bytes=").removesuffix("-") or 0)
        if start >= len(content):
            return Response(status_code=416)
        rest = content[start:]
        if self.is_damaged:
            rest = rest[::-1]
        headers = {"content-length": str(len(rest))}
        most = self.breaks_after.pop(0) if self.breaks_after else None
        return StreamingResponse(_pieces(rest, most), 206 if wanted else 200, headers)

    async def refuse(self, _request: Request) -> Response:
        status, code = self.error or (401, "RepoNotFound")
        return Response("Refused.", status, {"x-error-code": code})


async def _pieces(content: bytes, most: int | None) -> AsyncIterator[bytes]:
    yield content[:most]
    if most is not None:
        raise ConnectionResetError  # uvicorn closes the connection after this exception


@contextmanager
def hub_in_thread(fake: FakeHub) -> Iterator[str]:
    """Run both servers, and yield the address of the hub."""
    with listening_in_thread(fake.storage) as storage, listening_in_thread(fake.hub) as url:
        fake.storage_url = storage
        yield url
