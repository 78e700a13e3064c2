"""The place of a request in a distributed trace, as W3C's `traceparent` header writes it.

It knows no tracing library: ids are made where a request arrives and travel in its record.
"""

import re
import secrets
from dataclasses import dataclass

# https://www.w3.org/TR/trace-context/#traceparent-header; later versions may append fields
_HEADER = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_INVALID_VERSION = "ff"
_SAMPLED = 1


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A request's own span: the trace it belongs to, its id, and its parent's if it has one."""

    trace_id: int
    span_id: int
    parent_id: int | None = None
    is_sampled: bool = True

    def header(self, span_id: int) -> str:
        """Return the header for whoever works for one of the request's spans."""
        return f"00-{self.trace_id:032x}-{span_id:016x}-{int(self.is_sampled):02x}"


def trace_of(traceparent: str) -> TraceContext:
    """Go on with a client's trace, or begin one if there is none that can be read."""
    found = _HEADER.fullmatch(traceparent.strip())
    if found is not None and found[1] != _INVALID_VERSION and (found[1] != "00" or not found[5]):
        trace_id, parent_id = int(found[2], 16), int(found[3], 16)
        if trace_id and parent_id:
            is_sampled = bool(int(found[4], 16) & _SAMPLED)
            return TraceContext(trace_id, new_span_id(), parent_id, is_sampled)
    return TraceContext(secrets.randbits(128) or 1, new_span_id())


def new_span_id() -> int:
    """Make the id of a span."""
    return secrets.randbits(64) or 1
