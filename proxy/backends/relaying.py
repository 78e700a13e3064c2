"""Passes requests on to a backend as they came, and its answers back as they come.

Nothing is judged or changed; only failures are read, so that they look like all others and hold
nothing confidential, also those that come in the middle of a stream.
"""

from proxy.backends.client import PassthroughRequest, Pieces
from proxy.backends.confidential import Confidential
from proxy.backends.refusals import Refusal, as_error
from proxy.backends.transport import BackendClient
from proxy.dialects.openai_chat.replies import decode_error
from proxy.errors import ContextOverflow

_MEMBERS_OF_ERRORS = (b'"error"', b'"message"', b'"detail"')


async def relayed(
    connection: BackendClient, passage: PassthroughRequest, headers: dict[str, str]
) -> Pieces:
    """Send a request and stream the lines of its answer; closing this cancels the work upstream.

    A line comes in one piece, so that another can stand before and behind it.
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
        rest: list[bytes] = []
        while piece := await answer.next_chunk():
            whole, newline, beginning = piece.rpartition(b"\n")
            if newline:
                yield _discreet(b"".join((*rest, whole, newline)), connection.confidential)
                rest.clear()
            rest.append(beginning)
        if left := b"".join(rest):
            yield _discreet(left, connection.confidential)


def _discreet(lines: bytes, confidential: Confidential) -> bytes:
    """Take what is confidential out of lines that may be an error; quotes in a text are escaped."""
    is_violation = any(member in lines for member in _MEMBERS_OF_ERRORS)
    return confidential.out_of(lines) if is_violation else lines
