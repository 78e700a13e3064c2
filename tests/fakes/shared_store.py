"""An in-memory store that several replicas share, with a clock that a test sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from proxy.errors import StateUnavailable


@dataclass
class SharedStore:
    """Behaves like Valkey without latency; while it `is_down`, every operation fails."""

    now: float = 0.0
    is_down: bool = False
    kept: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    operations: list[str] = field(default_factory=list)

    async def claim(self, name: str, value: bytes, seconds: float) -> bool:
        return self._store_if("claim", name, value, seconds, when=(None,))

    async def renew(self, name: str, value: bytes, seconds: float) -> bool:
        return self._store_if("renew", name, value, seconds, when=(value, None))

    async def finish(self, name: str, value: bytes, final: bytes, seconds: float) -> bool:
        return self._store_if("finish", name, final, seconds, when=(value, None))

    async def release(self, name: str, value: bytes) -> None:
        self._record("release")
        if self._value_of(name) == value:
            del self.kept[name]

    async def look_up(self, name: str) -> bytes | None:
        self._record("look_up")
        return self._value_of(name)

    async def keep(self, entries: Mapping[str, bytes], seconds: float) -> None:
        self._record("keep")
        self.kept |= {name: (value, self.now + seconds) for name, value in entries.items()}

    async def use(self, name: str, seconds: float) -> bytes | None:
        self._record("use")
        await self.prolong([name], seconds)
        return self._value_of(name)

    async def prolong(self, names: Sequence[str], seconds: float) -> None:
        self._record("prolong")
        for name in names:
            if (value := self._value_of(name)) is not None:
                self.kept[name] = (value, self.now + seconds)

    async def forget(self, names: Sequence[str]) -> bool:
        self._record("forget")
        gone = [name for name in names if self._value_of(name) is not None]
        for name in gone:
            del self.kept[name]
        return bool(gone)

    def _store_if(
        self,
        operation: str,
        name: str,
        value: bytes,
        seconds: float,
        *,
        when: tuple[bytes | None, ...],
    ) -> bool:
        self._record(operation)
        if self._value_of(name) not in when:
            return False
        self.kept[name] = (value, self.now + seconds)
        return True

    def _record(self, operation: str) -> None:
        self.operations.append(operation)
        if self.is_down:
            raise StateUnavailable

    def _value_of(self, name: str) -> bytes | None:
        value, until = self.kept.get(name, (None, 0.0))
        return value if self.now < until else None
