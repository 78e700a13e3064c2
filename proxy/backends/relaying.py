"""Passes requests on to a backend as they came, and its answers back as they come.

Nothing is judged or changed; only failures are read, so that they look like all others.
"""

from proxy.backends.client import Passage, Pieces
from proxy.backends.refusals import Refusal, as_error
from proxy.backends.transport import Connection
from proxy.dialects.openai_chat.decode import decode_error
from proxy.errors import ContextOverflow


async def relayed(connection: Connection, passage: Passage, headers: dict[str, str]) -> Pieces:
    """Send a request and stream the bytes of its answer; closing this cancels the work upstream.

    Raises `BackendFailed` and `InvalidRequest` kinds of errors.
    """
    async with connection.post(passage.path, passage.body(), headers) as answer:
        if not 200 <= answer.status < 300:
            document = await answer.whole()
            error = decode_error(document.body)
            refusal = as_error(
                connection.name, Refusal(document.status, error, document.retry_after)
            )
            if isinstance(refusal, ContextOverflow):
                refusal.param = passage.text_field
            raise refusal
        while piece := await answer.next_chunk():
            yield piece
