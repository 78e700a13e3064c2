"""A backend of a kind that nobody named: recognised when it first answers, and from time to time.

Whatever stands at an address can be replaced by something else, so nothing is known for good.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import TypeAlias

from proxy.backends.client import (
    Backend,
    Description,
    Health,
    Model,
    PassthroughRequest,
    Pieces,
    ReplyEvents,
)
from proxy.backends.detection import Kind, kind_at
from proxy.backends.transport import BackendClient
from proxy.conversation.replies import EventSink
from proxy.conversation.requests import Question
from proxy.errors import BackendFailed, BackendUnavailable

logger = logging.getLogger(__name__)

_PATIENCE = 5.0
_STRANGE = "lists no models and names no engine: is that the address of a server for models?"

Adapters: TypeAlias = Callable[[Kind], Backend]


class DetectedBackend:
    """Whatever answers at an address; `adapter_for` makes the adapter for a kind of server.

    All adapters share one connection, which is closed here.
    """

    def __init__(self, connection: BackendClient, adapter_for: Adapters) -> None:
        self._connection = connection
        self._adapter_for = adapter_for
        self._kind: Kind | None = None
        self._adapter: Backend | None = None

    @property
    def name(self) -> str:
        """The address."""
        return self._connection.name

    async def close(self) -> None:
        """Close every connection."""
        await self._connection.close()

    def ask(
        self, question: Question, headers: dict[str, str], sink: EventSink | None = None
    ) -> ReplyEvents:
        """Put a question and stream the reply; `headers` (lower case) travel upstream."""
        known = self._adapter
        if known is None:
            return self._ask(question, headers, sink)
        return known.ask(question, headers, sink)

    async def _ask(
        self, question: Question, headers: dict[str, str], sink: EventSink | None = None
    ) -> ReplyEvents:
        """Put a question to whatever it is."""
        adapter = await self._known()
        async with aclosing(adapter.ask(question, headers, sink)) as batches:
            async for batch in batches:
                yield batch

    async def relay(self, passage: PassthroughRequest, headers: dict[str, str]) -> Pieces:
        """Pass a request on and stream its answer's lines; `headers` (lower case) travel too."""
        async with aclosing((await self._known()).relay(passage, headers)) as pieces:
            async for piece in pieces:
                yield piece

    async def count(self, question: Question, headers: dict[str, str]) -> int | None:
        """Tell how many tokens a question's prompt has there; None if unknown, never raises."""
        adapter = self._adapter
        return None if adapter is None else await adapter.count(question, headers)

    async def count_texts(
        self, texts: Sequence[str], headers: dict[str, str]
    ) -> tuple[int, ...] | None:
        """Tell how many tokens each text has on its own; None if unknown, never raises."""
        adapter = self._adapter
        return None if adapter is None else await adapter.count_texts(texts, headers)

    async def models(self) -> tuple[Model, ...]:
        """List the models it serves."""
        return await (await self._known()).models()

    async def describe(self, model: str) -> Description:
        """Tell what it knows of a model, after a look at what answers now; never raises."""
        try:
            adapter = await self._look()
        except BackendFailed:
            if self._adapter is None:
                return Description((model,), is_provisional=True)
            adapter = self._adapter
        return await adapter.describe(model)

    async def health(self) -> Health:
        """Return whether it can answer now; never raises."""
        try:
            adapter = await self._known()
        except BackendFailed:
            return Health.UNREACHABLE
        return await adapter.health()

    async def _known(self) -> Backend:
        """Return the adapter; raises BackendUnavailable while nothing ever answered.

        A server that is there and too busy to say what it is gets what every engine understands.
        """
        try:
            return self._adapter or await self._look()
        except BackendUnavailable:
            raise
        except BackendFailed:
            return self._adapter_for(Kind.OPENAI)

    async def _look(self) -> Backend:
        found = await kind_at(self._connection, _PATIENCE)
        kind = found or self._kind or Kind.OPENAI
        if self._adapter is None or kind is not self._kind:
            if found is None:
                logger.warning("%s %s", self.name, _STRANGE)
            logger.info("%s is served as %s", self.name, kind.value)
            self._kind, self._adapter = kind, self._adapter_for(kind)
        return self._adapter
