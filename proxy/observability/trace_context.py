"""Parses and writes the headers of W3C Trace Context, `traceparent` and `tracestate`.

    traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
                 version, trace id, parent id, flags (01: sampled)

Ids are generated when a request arrives, without a tracing library, and stored in its record.
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
    """The span of a request; `parent_id` is the client's span, or None if the client sent none."""

    trace_id: int
    span_id: int
    parent_id: int | None = None
    is_sampled: bool = True

    def header(self, span_id: int) -> str:
        """Return the `traceparent` to send to a server, so that its spans become children."""
        return f"00-{self.trace_id:032x}-{span_id:016x}-{int(self.is_sampled):02x}"


def trace_of(traceparent: str) -> TraceContext:
    """Continue a client's trace, or begin a new trace if the header is missing or invalid."""
    # an id of zero is invalid (W3C Trace Context, 3.2.2.3)
    return _read(traceparent) or TraceContext(secrets.randbits(128) or 1, new_span_id())


def state_of(traceparent: str, tracestates: Sequence[str]) -> str:
    """Return the client's `tracestate` without empty members; "" if it is not forwarded.

    It is forwarded only with a valid `traceparent` (W3C Trace Context, 3.3), and if it has at most
    512 characters and 32 members with distinct keys.
    """
    members = [member.strip(" \t") for member in ",".join(tracestates).split(",")]
    state = ",".join(filter(None, members))
    matches = [_MEMBER.fullmatch(member) for member in filter(None, members)]
    keys = {match[1] for match in matches if match is not None}
    is_valid = len(keys) == len(matches) <= 32 and len(state) <= 512
    return state if is_valid and _read(traceparent) is not None else ""


def _read(traceparent: str) -> TraceContext | None:
    match = _HEADER.fullmatch(traceparent.strip())
    # version ff is invalid, and version 00 has exactly four fields (3.2.2.1)
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
        return None
    trace_id, parent_id = int(match[2], 16), int(match[3], 16)
    if not (trace_id and parent_id):
        return None
    return TraceContext(trace_id, new_span_id(), parent_id, bool(int(match[4], 16) & 1))


def new_span_id() -> int:
    return secrets.randbits(64) or 1
