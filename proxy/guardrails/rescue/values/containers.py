"""A list or an object that is being read, and when to look for a run of members in it."""

from dataclasses import dataclass

from proxy.conversation.json import JsonObject, JsonValue

CLOSERS = {"{": "}", "[": "]", "(": ")"}
_STRICT_CLOSERS = {dict: "}", list: "]"}
# A run is looked for behind so many members of a container. After a look in vain it is looked for
# again later, the more text was looked at: what is short pays nothing for it, floods little.
_FIRST_MEMBERS = 8
_SLOW_MEMBERS = 2
_FRUITLESS = 128  # characters looked at in vain, for which one more member is read without looking
_WORTHWHILE = 8  # a run shorter than this part of the text that was looked at was in vain


@dataclass(slots=True)
class Open:
    """A container whose end has not been reached; its bracket may stand twice.

    `patience` is how many members are still to be read before a run is looked for.
    """

    container: JsonObject | list[JsonValue]
    closer: str
    key: str | None = None
    is_doubled: bool = False
    patience: int = _FIRST_MEMBERS

    @property
    def is_strict(self) -> bool:
        """Whether its brackets are those of JSON."""
        return self.closer == _STRICT_CLOSERS[type(self.container)]

    def looks_for_run(self) -> bool:
        """Count a member; tell whether to look for a run that begins with it."""
        self.patience -= 1
        return self.patience <= 0

    def has_looked(self, seen: int, length: int) -> None:
        """Take note of how much text was looked at, and how long a run stood there."""
        if length * _WORTHWHILE <= seen:
            self.patience = _SLOW_MEMBERS + seen // _FRUITLESS
