"""Which syntaxes can begin with which strings, and which other marks matter around calls."""

from collections.abc import Iterable
from functools import lru_cache

from proxy.guardrails.rescue.literals import Literals
from proxy.guardrails.rescue.syntax import Place, Syntax

# Control tokens that end a reply or a turn and leak into the text.
SPECIAL_TOKENS = frozenset(
    ("<|im_end|>", "<|im_start|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end|>", "</s>")
)
# Closing marks that models write once too often, or without the opening one.
STRAY_CLOSERS = frozenset(("</tool_call>", "</function>"))
# What models write when they invent the result of their own call, with its end.
INVENTED_RESULTS = {
    "<tool_response>": Literals(("</tool_response>",)),
    "[TOOL_RESULTS]": Literals(("[/TOOL_RESULTS]",)),
}


class Openings:
    """The openings of some syntaxes, prepared for looking them up in text."""

    def __init__(self, syntaxes: Iterable[Syntax]) -> None:
        self._known = [(opening, syntax) for syntax in syntaxes for opening in syntax.openings]
        everywhere = {opening for opening, _ in self._known}
        later = {
            opening for opening, syntax in self._known if syntax.place is not Place.REPLY_START
        }
        self.first = Literals(everywhere | SPECIAL_TOKENS)
        self.in_prose = Literals(later | SPECIAL_TOKENS)
        self.behind_call = Literals(
            later | SPECIAL_TOKENS | STRAY_CLOSERS | INVENTED_RESULTS.keys()
        )

    def that_fit(self, literal: str) -> list[tuple[str, Syntax]]:
        """Return what can begin where `literal` stands: longer openings first, else in order."""
        fitting = [
            (opening, syntax) for opening, syntax in self._known if literal.startswith(opening)
        ]
        return sorted(fitting, key=lambda pair: -len(pair[0]))


@lru_cache(maxsize=64)
def openings_of(syntaxes: tuple[Syntax, ...]) -> Openings:
    """Return the prepared openings of `syntaxes`."""
    return Openings(syntaxes)
