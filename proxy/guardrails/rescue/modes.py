"""What a scanner may be doing, as data; how it gets from one to another is told there."""

from dataclasses import dataclass, field
from typing import TypeAlias

from proxy.guardrails.rescue.attempt import Attempt
from proxy.guardrails.rescue.findings import Found
from proxy.guardrails.rescue.literals import Literals


@dataclass(slots=True)
class Listening:
    """In prose; `is_untouched` while nothing but white space has been seen."""

    is_untouched: bool = False


@dataclass(slots=True)
class Behind:
    """Behind a call, which is `pending` until it is certain, and the `gap` behind it."""

    pending: Found | None
    gap: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Dropping:
    """In what is left out, an invented result for instance, up to `end`."""

    end: Literals


Mode: TypeAlias = Listening | Attempt | Behind | Dropping
