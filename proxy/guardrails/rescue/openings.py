"""Which syntaxes can begin with which strings, and which other marks matter around calls."""

# ruff: noqa: RUF001 - the control tokens of DeepSeek and Step have a fullwidth bar

from collections.abc import Iterable
from functools import lru_cache

from proxy.guardrails.rescue.literals import Literals
from proxy.guardrails.rescue.syntax import Place, Syntax

# Control tokens that end a reply or a turn, or introduce a call, and leak into the text.
SPECIAL_TOKENS = frozenset(
    (
        *("<|im_end|>", "<|im_start|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end|>"),
        *("<s>", "</s>", "<bos>", "<eos>", "<|eot|>", "<|eom|>", "<|call|>", "<|return|>"),
        *("<turn|>", "<|turn>", "<end_of_turn>", "<|role_end|>", "<｜end▁of▁sentence｜>"),
        *("<|start|>assistant", "<|channel|>commentary", "<|channel|>analysis"),
        *("<|tool_calls_section_begin|>", "<｜tool▁calls▁begin｜>"),
        *("<ifm|tool_calls>", "<|plamo:begin_tool_requests:plamo|>"),
        *("<|plamo:begin_tool_request:plamo|>", "<|open|>tools<|sep|>"),
    )
)
# Closing marks that models write once too often, or without the opening one.
STRAY_CLOSERS = frozenset(
    (
        *("</tool_call>", "</tool_calls>", "</function>", "</function_call>", "</think>"),
        *("</function_calls>", "</seed:tool_call>", "</minimax:tool_call>", "</invoke>"),
        *("</atem:function_calls>", "</function_calls>", "<|tool_call|>", "<|/tool_call|>"),
        *("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>", "</｜DSML｜ calls>"),
        *("<|tool_calls_section_end|>", "<｜tool▁calls▁end｜>", "<｜tool_calls_end｜>"),
        *("<｜tool_call_end｜>", "<|tool_call_end|>", "<tool_call|>", "<end_function_call>"),
        *("</ifm|tool_calls>", "</ifm|tool_call>", "</longcat_tool_call>", "<|END_ACTION|>"),
        *("<|plamo:end_tool_request:plamo|>", "<|plamo:end_tool_requests:plamo|>"),
        *("<|plamo:end_tool_arguments:plamo|>", "<|end_message|>", "<|close|>tools<|sep|>"),
        *("<|close|>message<|sep|>", "<|python_end|>", "<|action_end|>", "[/TOOL_CALLS]"),
        *("]<]minimax[>[</tool_call>", "<|tools_suffix|>", "<｜tool▁call▁end｜>"),
    )
)
# How control tokens begin: nobody can write them into a sentence by accident.
CONTROL_BEGINNINGS = ("<|", "<｜", "[TOOL_CALLS]", "]<]", "to=functions", " to=functions")
LONGEST_CLOSER = max(map(len, STRAY_CLOSERS))
# What models write when they invent the result of their own call, with its end.
INVENTED_RESULTS = {
    "<tool_response>": Literals(("</tool_response>",)),
    "<|tool_response>": Literals(("<tool_response|>",)),
    "<tool_result>": Literals(("</tool_result>",)),
    "<tool_output>": Literals(("</tool_output>",)),
    "<function_results>": Literals(("</function_results>",)),
    "<function_response>": Literals(("</function_response>",)),
    "[TOOL_RESULTS]": Literals(("[/TOOL_RESULTS]",)),
    "<｜tool▁outputs▁begin｜>": Literals(("<｜tool▁outputs▁end｜>",)),
    "<｜tool▁output▁begin｜>": Literals(("<｜tool▁output▁end｜>",)),
    "<start_function_response>": Literals(("<end_function_response>",)),
    "<|START_TOOL_RESULT|>": Literals(("<|END_TOOL_RESULT|>",)),
}


def closer_in(literal: str, rest: str) -> str:
    """Return the stray closing mark that was found, or the half of one that ends the reply."""
    if literal:
        return literal if literal in STRAY_CLOSERS else ""
    is_half = len(rest) > 1 and any(closer.startswith(rest) for closer in STRAY_CLOSERS)
    return rest if is_half else ""


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
