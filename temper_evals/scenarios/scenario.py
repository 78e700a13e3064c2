"""The parts of a scenario: a request, a world, the right next step, and a judgment.

The judgment depends on the final state of the world and on the answer, not on the order of calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from proxy.conversation.json import JsonObject

Transcript: TypeAlias = Sequence[JsonObject]


class ToolFailed(Exception):
    """A tool failed; the model receives the text as the result."""


class RunEnded(Exception):
    """A call has ended the run; the model receives no result."""


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
    """The model cannot know the next step, because the text `fact` is not in the prompt anymore."""

    fact: str


Action: TypeAlias = CallTools | GiveAnswer | NotKnown


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a conversation: `progress` is the number of executed right calls.

    `tries` counts the replies since the last of these calls, and `action` is the right next step.
    """

    progress: int
    tries: int
    action: Action
    after_failure: bool = False


@dataclass(frozen=True, slots=True)
class Judgment:
    """The judgment of a run; `why` is the reason if it is not `right`.

    `damage` counts changes that the user did not request. `promoted` counts executed calls that a
    text only quoted.
    """

    right: bool
    why: str = ""
    damage: int = 0
    promoted: int = 0


class World(Protocol):
    """The state that tools read and change."""

    def call(self, name: str, arguments: JsonObject) -> str:
        """Run a tool; raises ToolFailed, or RunEnded if the model must not reply anymore."""


class Scenario(Protocol):
    """A task, the same in every arm."""

    @property
    def family(self) -> str:
        """The kind of task."""

    @property
    def name(self) -> str:
        """The family and the number of the instance."""

    @property
    def limit(self) -> int:
        """The largest number of replies in a run."""

    def request(self, seed: int) -> JsonObject:
        """Return the members of the first request; later requests only add messages."""

    def first_fields(self) -> JsonObject:
        """Return members that only the first request has, such as `tool_choice`."""

    def world(self) -> World:
        """Return the initial state of the world."""

    def judge(self, end: World, transcript: Transcript) -> Judgment:
        """Judge a run by the final world and the transcript."""
