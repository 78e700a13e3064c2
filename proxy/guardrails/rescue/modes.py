"""What a scanner may be doing, as data; how it gets from one to another is told there."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from proxy.guardrails.announcements import recognition
from proxy.guardrails.rescue.announcements import announces, gives_account, presents
from proxy.guardrails.rescue.attempt import Attempt
from proxy.guardrails.rescue.findings import Found
from proxy.guardrails.rescue.values.literals import Literals


@dataclass(slots=True)
class Listening:
    """In prose; `is_untouched` while nothing but white space has been seen."""

    is_untouched: bool = False


@dataclass(frozen=True)
class Beginning:
    """What stands before a call: what is known of the place of its `opening`.

    `is_first` if nothing but white space and thoughts stand before it, `begins_reply` if only
    calls do. The last `words` of the prose before are looked at only where it matters.
    """

    opening: str = ""
    is_first: bool = True
    begins_reply: bool = True
    words: str = ""
    is_sentence_start: bool = True
    is_apart: bool = False

    @cached_property
    def is_example(self) -> bool:
        """Whether the words announce an example."""
        return announces(self.words)

    @cached_property
    def is_account(self) -> bool:
        """Whether the words are about what somebody else writes."""
        return gives_account(self.words)

    @property
    def is_inline(self) -> bool:
        """Whether the opening stands on the line of other words."""
        return self.opening.startswith(" ")

    def announces_act(self, tools: Sequence[str]) -> bool:
        """Return whether a sentence ends here with which the model announces that it acts now."""
        is_told = self.is_account or not self.is_sentence_start
        return not is_told and (recognition.announces(self.words, tools) or presents(self.words))


@dataclass(slots=True)
class AfterCall:
    """Behind a call, which is `pending` until it is certain, and the `gap` behind it.

    A doubtful call counts only if it is the whole reply.
    """

    pending: Found | None
    gap: list[str] = field(default_factory=list)
    is_doubtful: bool = False


@dataclass(slots=True)
class Joined:
    """A call that counts if the next one does, and what stands between the two."""

    found: Found
    gap: str = ""
    joint: str = ""


@dataclass(frozen=True, slots=True)
class SkippingInventedResult:
    """In what is left out, an invented result for instance, up to `end`."""

    end: Literals


Mode: TypeAlias = Listening | Attempt | AfterCall | SkippingInventedResult
