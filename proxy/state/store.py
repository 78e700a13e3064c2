"""The contract of a store that replicas share: bytes under names, for a while, and claims.

It knows neither names nor contents, because both are sealed; see `sealing`.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Store(Protocol):
    """Keeps bytes for all replicas, each for some seconds.

    Every function is one step for all who use the store, and raises `StateUnavailable` where it
    cannot be taken.
    """

    async def claim(self, name: str, value: bytes, seconds: float) -> bool:
        """Keep a value if the name is free; reports whether it was."""

    async def renew(self, name: str, value: bytes, seconds: float) -> bool:
        """Keep a value for longer, and again if it is gone; not in the place of another one."""

    async def finish(self, name: str, value: bytes, final: bytes, seconds: float) -> bool:
        """Keep `final` in the place of a value that may be gone; not in that of another one."""

    async def release(self, name: str, value: bytes) -> None:
        """Free a name, if the value is still the one that is kept."""

    async def look_up(self, name: str) -> bytes | None:
        """Return what is kept under a name."""

    async def keep(self, entries: Mapping[str, bytes], seconds: float) -> None:
        """Keep values, all or none of them."""

    async def use(self, name: str, seconds: float) -> bytes | None:
        """Return what is kept under a name, and keep it for longer."""

    async def prolong(self, names: Sequence[str], seconds: float) -> None:
        """Keep for longer what there is of these names."""

    async def forget(self, names: Sequence[str]) -> bool:
        """Forget what is kept under these names; reports whether there was anything."""
