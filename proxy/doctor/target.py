"""The server that is checked, both directly and through Temper; and the findings of the checks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import httpx

from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import as_integer, as_text, member, parse_object
from proxy.profiles.known_model import KnownModel
from proxy.profiles.tried_models import Figure
from proxy.settings import Settings

# "skipped": the check was not possible, or does not apply.
Severity: TypeAlias = Literal["ok", "warn", "fail", "skipped"]


class Finding(NamedTuple):
    """The result of a check; `summary` is a sentence without a full stop.

    `remedy` is an instruction. `copy` contains lines that the user may copy, such as a
    configuration. `temper models --tried` lists the `measured` values.
    """

    status: Severity
    summary: str
    remedy: str = ""
    copy: str = ""
    measured: Mapping[str, Figure] = {}


class CheckResult(NamedTuple):
    """A finding with the title of its check; `model` is "" for checks of this machine."""

    title: str
    finding: Finding
    model: str = ""


def ok(summary: str, copy: str = "", **measured: Figure) -> Finding:
    return Finding("ok", summary, copy=copy, measured=measured)


def warn(summary: str, remedy: str, **measured: Figure) -> Finding:
    return Finding("warn", summary, remedy, measured=measured)


def fail(summary: str, remedy: str, **measured: Figure) -> Finding:
    return Finding("fail", summary, remedy, measured=measured)


def skip(summary: str) -> Finding:
    return Finding("skipped", summary)


CHAT = "/v1/chat/completions"
COUNT = "/v1/chat/completions/input_tokens"


class ServerResponse(NamedTuple):
    """An HTTP response; `document` is empty if the body is not a JSON object."""

    status: int
    document: JsonObject
    headers: httpx.Headers

    @property
    def error_message(self) -> str:
        error = self.document.get("error")
        return as_text(member(error, "message") or error) or f"status {self.status}"


@dataclass(frozen=True, slots=True)
class Target:
    """A model on a server.

    The HTTP client `direct` sends requests to the server itself; `key` is the server's API key. The
    HTTP client `temper` sends requests to Temper. `requested_window` is the configured window, in
    tokens.
    """

    settings: Settings
    model: str
    known: KnownModel
    direct: httpx.AsyncClient
    temper: httpx.AsyncClient
    key: str
    requested_window: int | None = None

    @property
    def authorization(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    async def fetch(self, path: str, headers: dict[str, str] | None = None) -> ServerResponse:
        """Fetch a document from the server itself; raises `httpx.HTTPError`."""
        sent_headers = self.authorization if headers is None else headers
        return _read_response(await self.direct.get(path, headers=sent_headers))

    async def post(self, path: str, body: JsonObject) -> ServerResponse:
        """Post to the server itself; raises `httpx.HTTPError`."""
        return _read_response(await self.direct.post(path, json=body, headers=self.authorization))

    async def post_to_temper(
        self, body: JsonObject, *, path: str = CHAT, headers: dict[str, str] | None = None
    ) -> ServerResponse:
        """Send a request to Temper; raises `httpx.HTTPError`."""
        request: JsonObject = {"model": self.model, **body}
        return _read_response(await self.temper.post(path, json=request, headers=headers))


def count(document: JsonValue, *path: str | int) -> int | None:
    return as_integer(member(document, *path))


def _read_response(response: httpx.Response) -> ServerResponse:
    document = parse_object(response.content) or {}
    return ServerResponse(response.status_code, document, response.headers)
