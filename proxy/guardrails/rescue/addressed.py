"""Text in which calls are only shown: addressed to the user, or repeated as a tool's result."""

from proxy.guardrails.rescue.openings import INVENTED_RESULTS
from proxy.guardrails.rescue.syntax import NotACall, Place, Reading, Reason
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.rescue.values.literals import Literals

_ENDS = Literals(("<|eot|>", "<|eom|>", "<|end|>", "<|start|>", "<|return|>"))
_RECIPIENT = "to=user<|message|>"


class Addressed:
    """Not a call but its opposite: what stands in such a message is shown, never run."""

    name = "addressed"
    openings: tuple[str, ...] = (f" {_RECIPIENT}", f"<|start|>assistant {_RECIPIENT}")
    place = Place.ANYWHERE
    is_marked = True

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Pass the whole message."""
        yield from cursor.take_until(_ENDS)
        return NotACall(Reason.QUOTED)


class AddressedAtStart(Addressed):
    """The same where a reply begins within the header."""

    name = "addressed_at_start"
    openings = (_RECIPIENT,)
    place = Place.REPLY_START


class RepeatedResult:
    """What a model repeats of a tool's result is the tool's; behind a call it is dropped."""

    name = "repeated_result"
    openings = tuple(INVENTED_RESULTS)
    place = Place.ANYWHERE
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Pass the whole result."""
        end = INVENTED_RESULTS[opening]
        yield from cursor.take_until(end)
        yield from cursor.one_of(end)
        return NotACall(Reason.QUOTED)
