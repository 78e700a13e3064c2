"""The languages that clients speak, and the one table of the paths at which each is spoken."""

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass

from proxy.dialects.front import Front, Stamp
from proxy.dialects.openai_chat.front import ChatFront

STAMP = Stamp(time.time, lambda: secrets.token_hex(12))
CHAT = ChatFront(STAMP)


@dataclass(frozen=True, slots=True)
class FrontRoute:
    """A language, the `paths` that answer in it, and the one that only counts tokens, if any."""

    front: Front
    paths: tuple[str, ...]
    count_path: str = ""


class Fronts:
    """Every language that is spoken; an unknown path is answered in the first."""

    def __init__(self, *routes: FrontRoute) -> None:
        self._routes = routes

    def __iter__(self) -> Iterator[FrontRoute]:
        return iter(self._routes)

    def of(self, path: str) -> Front:
        """Return the language of a path, or of what lies below one."""
        for route in self._routes[1:]:
            if path.startswith(route.paths):
                return route.front
        return self._routes[0].front


def all_fronts() -> Fronts:
    """Return every language there is."""
    chat = ("/v1/chat/completions", "/chat/completions")
    return Fronts(FrontRoute(CHAT, chat, "/v1/chat/completions/input_tokens"))
