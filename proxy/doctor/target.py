"""The server under checks, straight and through Temper, and what a check found of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import httpx

from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import as_text, as_whole, member, parse_object
from proxy.profiles.known_model import KnownModel
from proxy.profiles.tried_models import Figure
from proxy.settings import Settings

# How bad it is; SKIPPED where the check could not be made or has no meaning.
Severity: TypeAlias = Literal["ok", "warn", "fail", "skipped"]


class Finding(NamedTuple):
    """One result; `said` is a sentence without its full stop, `remedy` says what to do.

    `copy` are lines to be copied as they are; `measured` is what programs may want to know of it.
    """

    status: Severity
    said: str
    remedy: str = ""
    copy: str = ""
    measured: Mapping[str, Figure] = {}


class CheckResult(NamedTuple):
    """A check of a model (or of this machine, where that is ""), by its title."""

    title: str
    finding: Finding
    model: str = ""


def ok(said: str, copy: str = "", **measured: Figure) -> Finding:
    return Finding("ok", said, copy=copy, measured=measured)


def warn(said: str, remedy: str, **measured: Figure) -> Finding:
    return Finding("warn", said, remedy, measured=measured)


def fail(said: str, remedy: str, **measured: Figure) -> Finding:
    return Finding("fail", said, remedy, measured=measured)


def skip(said: str) -> Finding:
    return Finding("skipped", said)


CHAT = "/v1/chat/completions"
COUNT = "/v1/chat/completions/input_tokens"


class ServerAnswer(NamedTuple):
    """An answer over HTTP; `document` is empty where the body is no JSON object."""

    status: int
    document: JsonObject
    headers: httpx.Headers

    @property
    def error_message(self) -> str:
        error = self.document.get("error")
        return as_text(member(error, "message") or error) or f"status {self.status}"


@dataclass(frozen=True, slots=True)
class Target:
    """One model behind one server.

    `direct` speaks to the server itself, with `key` as it wants to be asked; `temper` is the whole
    of Temper in front of it. `asked_window` is what the operator wanted, in tokens.
    """

    settings: Settings
    model: str
    known: KnownModel
    direct: httpx.AsyncClient
    temper: httpx.AsyncClient
    key: str
    asked_window: int | None = None

    @property
    def authorization(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    async def look(self, path: str, headers: dict[str, str] | None = None) -> ServerAnswer:
        """Fetch a document of the server itself; raises `httpx.HTTPError`."""
        told = self.authorization if headers is None else headers
        return _read_answer(await self.direct.get(path, headers=told))

    async def send(self, path: str, body: JsonObject) -> ServerAnswer:
        """Post to the server itself; raises `httpx.HTTPError`."""
        return _read_answer(await self.direct.post(path, json=body, headers=self.authorization))

    async def ask(
        self, body: JsonObject, *, path: str = CHAT, headers: dict[str, str] | None = None
    ) -> ServerAnswer:
        """Put a request to Temper; raises `httpx.HTTPError`."""
        asked: JsonObject = {"model": self.model, **body}
        return _read_answer(await self.temper.post(path, json=asked, headers=headers))


def count(document: JsonValue, *path: str | int) -> int | None:
    return as_whole(member(document, *path))


def _read_answer(answer: httpx.Response) -> ServerAnswer:
    return ServerAnswer(answer.status_code, parse_object(answer.content) or {}, answer.headers)
