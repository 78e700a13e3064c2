"""What a scenario is: a request, a world to act on, the right next step, and a judgement.

Judged is the final state of the world and what the answer says, never the order of calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from proxy.conversation.json import JsonObject, JsonValue

Transcript: TypeAlias = Sequence[JsonObject]


class ToolFailed(Exception):
    """A tool could not do what it was asked for; the text goes back to the model."""


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
    """The right next step is to say this."""

    text: str


@dataclass(frozen=True, slots=True)
class NotKnown:
    """Nobody could tell the next step: this text is no longer in the prompt."""

    fact: str


Action: TypeAlias = CallTools | GiveAnswer | NotKnown


@dataclass(frozen=True, slots=True)
class Position:
    """Where a conversation stands: steps taken, the model's replies since, and what is due."""

    progress: int
    tries: int
    action: Action
    after_failure: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a run ended right, else why not; `damage` counts changes that nobody asked for.

    `promoted` counts the calls that were run though they were only quoted.
    """

    right: bool
    why: str = ""
    damage: int = 0
    promoted: int = 0


class World(Protocol):
    """What tools act on."""

    def call(self, name: str, arguments: JsonObject) -> str:
        """Run a tool; raises ToolFailed."""

    def snapshot(self) -> JsonValue:
        """Return all that was changed."""


class Scenario(Protocol):
    """One task, the same in every arm; `limit` is how many replies it may take."""

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
        """Make the world as it is before the run."""

    def judge(self, end: World, transcript: Transcript) -> Judgement:
        """Judge a run by the world it left, and by what was said."""
