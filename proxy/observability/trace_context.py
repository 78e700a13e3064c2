"""A request's place in a distributed trace, as W3C's `traceparent` and `tracestate` write it.

It uses no tracing library: ids are made when a request arrives and travel in its record.
"""

import re
import secrets
from collections.abc import Sequence

import msgspec

# https://www.w3.org/TR/trace-context/#traceparent-header; later versions may append fields
_HEADER = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

# https://www.w3.org/TR/trace-context/#tracestate-header
_MEMBER = re.compile(r"([a-z0-9][a-z0-9_*/@-]{0,255})=[ -+\--<>-~]{0,255}[!-+\--<>-~]")


class TraceContext(msgspec.Struct, frozen=True, gc=False):
    """A request's own span: its trace, its id, and its parent's id if it has one."""

    trace_id: int
    span_id: int
    parent_id: int | None = None
    is_sampled: bool = True

    def header(self, span_id: int) -> str:
        """Return the header for whoever works on one of the request's spans."""
        return f"00-{self.trace_id:032x}-{span_id:016x}-{int(self.is_sampled):02x}"


def trace_of(traceparent: str) -> TraceContext:
    """Continue a client's trace, or begin one if there is no readable one."""
    return _read(traceparent) or TraceContext(secrets.randbits(128) or 1, new_span_id())


def state_of(traceparent: str, tracestates: Sequence[str]) -> str:
    """Return the client's `tracestate` to send on unchanged, or "".

    It means nothing without a readable `traceparent`. A value that is no list of at most 32 members
    in 512 characters is dropped.
    """
    members = [one.strip(" \t") for one in ",".join(tracestates).split(",")]
    state = ",".join(filter(None, members))
    found = [_MEMBER.fullmatch(one) for one in filter(None, members)]
    keys = {one[1] for one in found if one is not None}
    is_sound = len(keys) == len(found) <= 32 and len(state) <= 512
    return state if is_sound and _read(traceparent) is not None else ""


def _read(traceparent: str) -> TraceContext | None:
    found = _HEADER.fullmatch(traceparent.strip())
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    trace_id, parent_id = int(found[2], 16), int(found[3], 16)
    if not (trace_id and parent_id):
        return None
    return TraceContext(trace_id, new_span_id(), parent_id, bool(int(found[4], 16) & 1))


def new_span_id() -> int:
    return secrets.randbits(64) or 1
