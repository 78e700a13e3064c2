"""A reply that is a call, or a list of calls, in plain JSON and nothing else."""

from proxy.guardrails.rescue.cursor import Cursor
from proxy.guardrails.rescue.envelope import read_all_calls
from proxy.guardrails.rescue.syntax import Place, Reading


class BareJson:
    """Plain JSON from the first character of the reply to the last."""

    name = "bare_json"
    openings = ("{", "[")
    place = Place.REPLY_START
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read the JSON of which `opening` is the first bracket."""
        cursor.rewind()
        return (yield from read_all_calls(cursor, is_marked=False))
