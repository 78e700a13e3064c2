"""Puts a turn's questions to a backend: the only asynchronous code between the two edges."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import TypeAlias

from proxy.backends.client import Backend
from proxy.conversation.replies import ReplyEvent
from proxy.errors import BackendFailed, InvalidRequest
from proxy.inference.turn import Turn

Headers: TypeAlias = dict[str, str]
Attempt: TypeAlias = Callable[[Headers], AbstractContextManager[Headers]]


async def converse(
    turn: Turn, backend: Backend, headers: Headers, attempt: Attempt = nullcontext
) -> AsyncGenerator[ReplyEvent, None]:
    """Stream the client's events of a turn; closing the iterator cancels the work upstream.

    A later attempt that fails costs nothing that an earlier one gave: the turn falls back to it.
    Each attempt runs within an `attempt`, which may add to the headers that travel upstream.
    Raises `BackendFailed`, `InvalidRequest` and `GuardrailsExhausted` kinds of errors.
    """
    while (question := turn.next_question()) is not None:
        try:
            with attempt(headers) as own:
                async with aclosing(backend.ask(question, own)) as events:
                    async for event in events:
                        for shown in turn.receive(event):
                            yield shown
        except (BackendFailed, InvalidRequest):
            fallback = turn.abandon()
            if not fallback:
                raise
            for shown in fallback:
                yield shown
