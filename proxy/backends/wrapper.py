"""A backend in front of another one, for whoever has something to add to a part of it."""

from collections.abc import Sequence

from proxy.backends.client import (
    Backend,
    Description,
    Health,
    Model,
    PassthroughRequest,
    Pieces,
    ReplyEvents,
)
from proxy.conversation.replies import EventSink
from proxy.conversation.requests import Question


class BackendWrapper:
    """Has everything done by another backend; a subclass does some of it itself."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def name(self) -> str:
        """The backend's name, which may tell more once it has answered."""
        return self._backend.name

    def ask(
        self, question: Question, headers: dict[str, str], sink: EventSink | None = None
    ) -> ReplyEvents:
        """Put a question and stream the reply; `headers` (lower case) travel upstream."""
        return self._backend.ask(question, headers, sink)

    def relay(self, passage: PassthroughRequest, headers: dict[str, str]) -> Pieces:
        """Pass a request on and stream its answer's lines; `headers` (lower case) travel too."""
        return self._backend.relay(passage, headers)

    async def count(self, question: Question, headers: dict[str, str]) -> int | None:
        """Tell how many tokens a question's prompt has there; None if unknown, never raises."""
        return await self._backend.count(question, headers)

    async def count_texts(
        self, texts: Sequence[str], headers: dict[str, str]
    ) -> tuple[int, ...] | None:
        """Tell how many tokens each text has on its own; None if unknown, never raises."""
        return await self._backend.count_texts(texts, headers)

    async def models(self) -> tuple[Model, ...]:
        """List the models it serves."""
        return await self._backend.models()

    async def describe(self, model: str) -> Description:
        """Tell what it knows of the model that a request names; never raises."""
        return await self._backend.describe(model)

    async def health(self) -> Health:
        """Return whether it can answer now; never raises."""
        return await self._backend.health()
