"""Which syntaxes can begin with which strings, and which other marks matter around calls."""

# ruff: noqa: RUF001 - the control tokens of DeepSeek and Step have a fullwidth bar

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from proxy.guardrails.rescue.syntax import Place, Syntax
from proxy.guardrails.rescue.values.literals import Literals

# Control tokens that end a reply or a turn, or introduce a call, and leak into the text.
SPECIAL_TOKENS = frozenset(
    (
        *("<|im_end|>", "<|im_start|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end|>"),
        *("<s>", "</s>", "<bos>", "<eos>", "<|eot|>", "<|eom|>", "<|call|>", "<|return|>"),
        *("<turn|>", "<|turn>", "<end_of_turn>", "<|role_end|>", "<｜end▁of▁sentence｜>"),
        *("<|start|>assistant", "<|channel|>commentary", "<|channel|>analysis"),
        *("<|tool_calls_section_begin|>", "<｜tool▁calls▁begin｜>", "<|tool▁calls▁begin|>"),
        *("<|tool_call_section_begin|>", "<|END_OF_TURN_TOKEN|>", "<|im_start|>assistant"),
        *("<|start_header_id|>assistant<|end_header_id|>", "<start_of_turn>model"),
        *("<|turn>model", "<|assistant|>", "<｜Assistant｜>"),
        *("<ifm|tool_calls>", "<|plamo:begin_tool_requests:plamo|>"),
        *("<|plamo:begin_tool_request:plamo|>", "<|open|>tools<|sep|>", "<|stop|>"),
        *("<|channel|> commentary", "<|channel|> analysis", "<|start|> assistant"),
        *("<｜tool▁calls｜>", "<|tool▁calls|>", "<|from|>assistant"),
    )
)
# Closing marks that models write once too often, or without the opening one.
STRAY_CLOSERS = frozenset(
    (
        *("</tool_call>", "</tool_calls>", "</function>", "</function_call>", "</think>"),
        *("</function_calls>", "</seed:tool_call>", "</minimax:tool_call>", "</invoke>"),
        *("<|/tool_calls|>", "</TOOLCALL>", "</toolcall>", "[/TOOL_CALL]", "</tool_use>"),
        *("</atem:function_calls>", "<|tool_call|>", "<|/tool_call|>", "<|tool_call:end|>"),
        *("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>", "</｜DSML｜ calls>"),
        *("<|tool_calls_section_end|>", "<｜tool▁calls▁end｜>", "<｜tool_calls_end｜>"),
        *("<|tool_call_section_end|>", "<|tool▁calls▁end|>", "<|tool▁call▁end|>"),
        *("<｜tool_call_end｜>", "<|tool_call_end|>", "<tool_call|>", "<end_function_call>"),
        *("</ifm|tool_calls>", "</ifm|tool_call>", "</longcat_tool_call>", "<|END_ACTION|>"),
        *("<|plamo:end_tool_request:plamo|>", "<|plamo:end_tool_requests:plamo|>"),
        *("<|plamo:end_tool_arguments:plamo|>", "<|end_message|>", "<|close|>tools<|sep|>"),
        *("<|close|>message<|sep|>", "<|python_end|>", "<|action_end|>", "[/TOOL_CALLS]"),
        "</dots_function_call>",
        *("]<]minimax[>[</tool_call>", "<|tools_suffix|>", "<｜tool▁call▁end｜>"),
    )
)
# Marks behind thoughts. Where no thoughts were begun, the prompt had begun them.
THOUGHT_ENDS = frozenset(
    (
        *("</think>", "</thinking>", "</thought>", "</reasoning>", "</seed:think>", "</mm:think>"),
        *("</longcat_think>", "</ifm|think>", "[/THINK]", "◁/think▷", "<|END_THINKING|>"),
        *("<|plamo:end_think:plamo|>", "<|close|>think<|sep|>", "<channel|>"),
    )
)
# How control tokens begin: nobody can write them into a sentence by accident.
CONTROL_BEGINNINGS = (
    *("<|", "<｜", "[TOOL_CALLS]", "]<]", "to=functions", " to=functions", "<ifm|"),
    *("<tool_call:", "<tool_calls:", "<dots_function_call>"),
    *("<minimax:tool_call>", "<seed:tool_call>", "<longcat_tool_call>", "<start_function_call>"),
)
LONGEST_CLOSER = max(map(len, STRAY_CLOSERS))
# A control token that no family here is known to write, alone at the end.
_TOKEN = re.compile(r"<[|｜][^\s<>|｜]+[|｜]>\s*")
_TOKEN_BEGINS = re.compile(r"<(?:[|｜](?:[^\s<>|｜]+(?:[|｜](?:>\s*)?)?)?)?")
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


def closer_in(literal: str | None, rest: str, *, is_all: bool) -> str | None:
    """Return the stray closing mark that was found, or what ends the reply instead of one.

    That is the half of a mark, or a control token that nobody knows: no sentence ends with it.
    None where more text is needed; `is_all` if as much of the `rest` is there as is looked at.
    """
    if literal is None or literal in THOUGHT_ENDS:
        return None if literal is None else ""
    if literal:
        return literal if literal in STRAY_CLOSERS else ""
    if is_all and len(rest) > 1 and any(closer.startswith(rest) for closer in STRAY_CLOSERS):
        return rest
    if _TOKEN_BEGINS.fullmatch(rest) is None:
        return ""
    is_token = len(rest) < LONGEST_CLOSER and _TOKEN.fullmatch(rest) is not None
    return (rest if is_token else "") if is_all else None


class Either(Literals):
    """Two sets of literals that count as one; preparing them together would take too long."""

    def __init__(self, first: Literals, second: Literals) -> None:
        self._first = first
        self._second = second

    def find(self, text: str, start: int, *, is_finished: bool) -> int:
        """Return where the first literal of either stands or may be beginning."""
        place = self._first.find(text, start, is_finished=is_finished)
        return min(place, self._second.find(text, start, is_finished=is_finished))

    def at(self, text: str, place: int, *, is_finished: bool) -> str | None:
        """Return the longer literal that stands at `place`, None if either is undecided."""
        one = self._first.at(text, place, is_finished=is_finished)
        other = self._second.at(text, place, is_finished=is_finished)
        return None if one is None or other is None else max(one, other, key=len)


@dataclass(frozen=True, slots=True)
class Openings:
    """The openings of some syntaxes, prepared for looking them up in text."""

    known: tuple[tuple[str, Syntax], ...]
    first: Literals
    in_prose: Literals
    behind_call: Literals
    _fitting: dict[str, list[tuple[str, Syntax]]] = field(default_factory=dict)

    @staticmethod
    def of(syntaxes: Iterable[Syntax]) -> "Openings":
        """Prepare the openings of these syntaxes, and the other marks that matter."""
        known = _openings_of_all(syntaxes)
        marks = SPECIAL_TOKENS | THOUGHT_ENDS
        later = _later(known) | marks
        return Openings(
            known,
            Literals({opening for opening, _ in known} | marks),
            Literals(later),
            Literals(later | STRAY_CLOSERS | INVENTED_RESULTS.keys()),
        )

    def that_fit(self, literal: str) -> list[tuple[str, Syntax]]:
        """Return what can begin where `literal` stands: longer openings first, else in order."""
        if literal not in self._fitting:
            fitting = [pair for pair in self.known if literal.startswith(pair[0])]
            self._fitting[literal] = sorted(fitting, key=lambda pair: -len(pair[0]))
        return self._fitting[literal]

    def candidates(self, literal: str, places: Container[Place]) -> list[tuple[str, Syntax]]:
        """Return what can begin where `literal` stands, in a place that is one of `places`."""
        return [pair for pair in self.that_fit(literal) if pair[1].place in places]

    def are_marked(self, literal: str) -> bool:
        """Return whether anything that can begin where `literal` stands is marked."""
        return any(syntax.is_marked for _, syntax in self.that_fit(literal))

    def stand_in(self, text: str) -> bool:
        """Whether more than control tokens stands in a text that is not the reply's first."""
        place = self.in_prose.find(text, 0, is_finished=True)
        while (literal := self.in_prose.at(text, place, is_finished=True)) in SPECIAL_TOKENS:
            place = self.in_prose.find(text, place + len(literal), is_finished=True)
        return bool(literal)

    def joined_by(self, syntaxes: Iterable[Syntax]) -> "Openings":
        """Return these openings and those of a few more syntaxes."""
        known = _openings_of_all(syntaxes)
        everywhere = Literals(opening for opening, _ in known)
        later = Literals(_later(known))
        return Openings(
            self.known + known,
            Either(self.first, everywhere),
            Either(self.in_prose, later),
            Either(self.behind_call, later),
        )


@lru_cache(maxsize=64)
def openings_of(syntaxes: tuple[Syntax, ...], named: tuple[Syntax, ...] = ()) -> Openings:
    """Return the prepared openings of `syntaxes`, and of those that one client's tools add."""
    return openings_of(syntaxes).joined_by(named) if named else Openings.of(syntaxes)


def _openings_of_all(syntaxes: Iterable[Syntax]) -> tuple[tuple[str, Syntax], ...]:
    return tuple((opening, syntax) for syntax in syntaxes for opening in syntax.openings)


def _later(known: Iterable[tuple[str, Syntax]]) -> set[str]:
    """Return the openings that can stand behind the beginning of a reply."""
    return {opening for opening, syntax in known if syntax.place is not Place.REPLY_START}
