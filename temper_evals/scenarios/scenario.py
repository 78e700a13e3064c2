"""The parts of a scenario: a request, a world, the right next step, and a judgment.

Judged are the final state of the world and the content of the answer, never the order of calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from proxy.conversation.json import JsonObject

Transcript: TypeAlias = Sequence[JsonObject]


class ToolFailed(Exception):
    """A tool failed; the text goes back to the model."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of a tool with its arguments."""

    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class CallTools:
    """The right next step is to call these tools, all in one reply."""

    calls: tuple[PlannedCall, ...]


@dataclass(frozen=True, slots=True)
class GiveAnswer:
    """The right next step is this answer."""

    text: str


@dataclass(frozen=True, slots=True)
class NotKnown:
    """The next step cannot be known: this text is no longer in the prompt."""

    fact: str


Action: TypeAlias = CallTools | GiveAnswer | NotKnown


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a conversation: steps taken, replies since then, and the due action."""

    progress: int
    tries: int
    action: Action
    after_failure: bool = False


@dataclass(frozen=True, slots=True)
class Judgment:
    """Whether a run ended right, else the reason; `damage` counts changes without a request.

    `promoted` counts executed calls that were only quoted.
    """

    right: bool
    why: str = ""
    damage: int = 0
    promoted: int = 0


class World(Protocol):
    """The state that tools act on."""

    def call(self, name: str, arguments: JsonObject) -> str:
        """Run a tool; raises ToolFailed."""


class Scenario(Protocol):
    """One task, the same in every arm; `limit` is the number of replies that it may take."""

    @property
    def family(self) -> str:
        """The kind of task."""

    @property
    def name(self) -> str:
        """The family and the number of the instance."""

    @property
    def limit(self) -> int:
        """How many replies a run may take."""

    def request(self, seed: int) -> JsonObject:
        """Return the members of every request: messages, tools and the like."""

    def first_fields(self) -> JsonObject:
        """Return the members that only the first request has."""

    def world(self) -> World:
        """Return the world as it is before the run."""

    def judge(self, end: World, transcript: Transcript) -> Judgment:
        """Judge a run by the final world and the transcript."""
