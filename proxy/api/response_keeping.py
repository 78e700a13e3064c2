"""Where responses are kept, as the settings say, and who waits until one is.

In memory, in a file, or nowhere. A file is written by a thread of its own; the end of an answer
waits for that, so that its client may go on from it at once, at whichever worker it gets to.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, Union

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.dialects.openai_responses.store import Bounds, MemoryStore
from proxy.settings import Settings

if TYPE_CHECKING:  # SQLite is imported where there is a file
    from proxy.state.responses_file import ResponsesFile

Kept: TypeAlias = Union[MemoryStore, "ResponsesFile", None]

REFERENCES = (b'"previous_response_id"', b'"item_reference"')
"""What stands in a request that cannot be read without what was kept."""


@contextmanager
def keeping_responses(
    settings: Settings, on_loss: Callable[[str], None] = lambda _reason: None
) -> Iterator[Kept]:
    """Open what keeps responses, None where nothing does; raises `InvalidConfiguration`.

    Several workers need a file: which of them gets the next request is chance. `on_loss` is told,
    by any thread, why a response could not be stored.
    """
    kept = settings.responses
    bounds = Bounds(kept.store_responses, kept.store_bytes, kept.store_seconds)
    if kept.path is not None:
        from proxy.state.responses_file import open_responses

        with open_responses(kept.path, bounds, on_loss) as file:
            yield file
    elif kept.store == "off" or settings.server.workers > 1:
        yield None
    else:
        yield MemoryStore(time.monotonic, bounds)


def examine_keeping(settings: Settings) -> None:
    """Find out whether a file could be opened; raises `InvalidConfiguration`."""
    if settings.responses.path is not None:
        from proxy.state.responses_file import examine_responses

        examine_responses(settings.responses.path)


@dataclass(frozen=True, slots=True)
class WaitForWriting:
    """ASGI middleware: an answer ends when what was kept of it has been written to the `file`."""

    app: ASGIApp
    file: "ResponsesFile"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_when_written(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                await self.file.written()
            await send(message)

        await self.app(scope, receive, send_when_written)
