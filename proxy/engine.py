"""Puts a turn's questions to a backend: the only asynchronous code between the two edges."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from proxy.backends.client import Backend
from proxy.conversation.replies import ReplyEvent
from proxy.errors import BackendFailed, InvalidRequest
from proxy.inference.turn import Turn


async def converse(
    turn: Turn, backend: Backend, headers: dict[str, str]
) -> AsyncGenerator[ReplyEvent, None]:
    """Stream the client's events of a turn; closing the iterator cancels the work upstream.

    A later attempt that fails costs nothing that an earlier one gave: the turn falls back to it.
    Raises `BackendFailed`, `InvalidRequest` and `GuardrailsExhausted` kinds of errors.
    """
    while (question := turn.next_question()) is not None:
        try:
            async with aclosing(backend.ask(question, headers)) as events:
                async for event in events:
                    for shown in turn.receive(event):
                        yield shown
        except (BackendFailed, InvalidRequest):
            fallback = turn.abandon()
            if not fallback:
                raise
            for shown in fallback:
                yield shown
