"""Passthrough requests for the tests of every backend."""

from contextlib import aclosing

from proxy.backends.client import Backend, PassthroughRequest

PASSAGE = PassthroughRequest("/v1/embeddings", "input", "m", {"model": b'"m"', "input": b'"a"'})


async def relayed_by(backend: Backend, passage: PassthroughRequest = PASSAGE) -> bytes:
    """Relay a passthrough request and collect the response."""
    async with aclosing(backend.relay(passage, {})) as pieces:
        return b"".join([piece async for piece in pieces])
