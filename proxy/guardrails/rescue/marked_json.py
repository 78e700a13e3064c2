"""Calls in JSON behind an unmistakable mark, whichever mark a model family uses."""

import re
from collections.abc import Iterable

from proxy.guardrails.rescue.cursor import Cursor
from proxy.guardrails.rescue.envelope import read_all_calls
from proxy.guardrails.rescue.literals import Literals
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading

_LANGUAGE = re.compile(r"[a-z_]+")
_FENCE = "```"
_REPETITIONS = 3  # of the opening mark


class MarkedJson:
    """JSON behind one of several marks; objects, a list or a code fence may stand there.

    `closers` are the marks behind the calls, which may be missing.
    """

    is_marked = True

    def __init__(
        self,
        name: str,
        openings: Iterable[str],
        closers: Iterable[str] = (),
        place: Place = Place.ANYWHERE,
    ) -> None:
        self.name = name
        self.place = place
        self.openings = tuple(openings)
        self._ends = tuple(closers)
        self._repeated = Literals(self.openings)
        self._closers = Literals(self._ends)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read calls up to the closing mark, or to where it is missing."""
        for _ in range(_REPETITIONS):
            yield from cursor.whitespace()
            if not (yield from cursor.one_of(self._repeated)):
                break
        yield from cursor.whitespace()
        is_fenced = yield from cursor.literal(_FENCE)
        if is_fenced:
            yield from cursor.take(_LANGUAGE)
        found = yield from read_all_calls(cursor, is_marked=True, ends=self._ends)
        if isinstance(found, NotACall):
            return found
        if is_fenced and (yield from cursor.literal(_FENCE)):
            yield from cursor.whitespace()
        is_closed = not self._ends or bool((yield from cursor.one_of(self._closers)))
        return Calls(found.calls, found.closed and is_closed)


FAMILIES = (
    MarkedJson("granite", ("<|tool_call|>", "<function_call>")),
    MarkedJson("tool_calls", ("<tool_calls>", "<|tool_calls|>"), ("</tool_calls>",)),
    MarkedJson("longcat", ("<longcat_tool_call>",), ("</longcat_tool_call>",)),
    MarkedJson("cohere", ("<|START_ACTION|>",), ("<|END_ACTION|>",)),
    MarkedJson(
        "internlm",
        ("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"),
        ("<|action_end|>",),
    ),
    MarkedJson("phi4", ("functools",), place=Place.REPLY_START),
    MarkedJson("phi4_in_text", ("\nfunctools",)),
    MarkedJson("llama3", ("<|python_tag|>",)),
    MarkedJson("llama4", ("<|python_start|>",), ("<|python_end|>",)),
    MarkedJson("lfm2", ("<|tool_call_start|>",), ("<|tool_call_end|>",)),
    MarkedJson("gemma_json", ("<|tool_call>",), ("<tool_call|>",)),
    MarkedJson("gigachat", ("<|function_call|>", "<|message_sep|>\n\nfunction call<|role_sep|>\n")),
    MarkedJson("inkling", ("<|content_invoke_tool_json|>",), ("<|end_message|>",)),
    MarkedJson("function_calls", ("<function_calls>",), ("</function_calls>",)),
)
