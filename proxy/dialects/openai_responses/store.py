"""What a store of responses has to offer: a client goes on from one instead of repeating it.

Each response holds its own items only and names the one it goes on from. Whoever uses a response
uses all before it: so the one that is left alone for longest never stands in the middle of a
conversation that is still used, and goes first.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from proxy.conversation import json
from proxy.dialects.lenient_json import as_object, as_text

_OVERHEAD = 2**10  # of a response beside its bytes


class StoredResponse(msgspec.Struct, frozen=True):
    """A response that ended well: the items it was asked with and its own, and the whole object."""

    id: str
    inputs: Sequence[bytes]
    output: Sequence[bytes]
    whole: bytes
    previous_id: str | None = None

    @property
    def items(self) -> list[bytes]:
        """All that it adds to the conversation."""
        return [*self.inputs, *self.output]

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return _OVERHEAD + len(self.whole) + sum(map(len, self.items))


class ResponseStore(Protocol):
    """Keeps responses by the owner of the key that asked for them.

    What cannot be kept is lost, and what cannot be read is not there; only `forget` may raise.
    """

    def keep(self, owner: str, response: StoredResponse) -> None:
        """Keep a response, once, at the expense of those that were not used for longest."""

    def chain(self, owner: str, response_id: str) -> Sequence[StoredResponse]:
        """Return a response and those before it, the latest first, as far as they are known.

        This counts as a use of them all.
        """

    def find(self, owner: str, response_id: str) -> StoredResponse | None:
        """Return a response, and count that as a use of it and of all before it."""
        return next(iter(self.chain(owner, response_id)), None)

    def history(self, owner: str, response_id: str) -> list[bytes] | None:
        """Return all items up to the end of a response; None if a part of them is not known."""
        chain = self.chain(owner, response_id)
        if not chain or chain[-1].previous_id is not None:
            return None
        return [item for response in reversed(chain) for item in response.items]

    def inputs(self, owner: str, response_id: str) -> list[bytes] | None:
        """Return what a response was made from, as far as it is known; None without a response."""
        chain = self.chain(owner, response_id)
        if not chain:
            return None
        latest, *earlier = chain
        return [item for one in reversed(earlier) for item in one.items] + [*latest.inputs]

    def item(self, owner: str, item_id: str) -> bytes | None:
        """Return an item by its own id, whichever response it belongs to."""

    def forget(self, owner: str, response_id: str) -> bool:
        """Forget a response; reports whether there was one."""


def id_of(item: bytes) -> str:
    """Return the id of an item, "" where it has none."""
    return as_text(as_object(json.parse(item)).get("id"))
