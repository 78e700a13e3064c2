"""What happened to a request in a few plain words, for a line that people read in passing.

Logs for programs, metrics and headers have `proxy.facts.repairs` instead.
"""

from collections.abc import Iterable

from proxy.facts import (
    BrokeOff,
    Coerced,
    Compacted,
    Dropped,
    Fact,
    Healed,
    LoopNoticed,
    Refused,
    RejectedReply,
    Renamed,
    Repaired,
    Rescued,
    RoundsExceeded,
    RuleSkipped,
    Unchecked,
    WindowFilled,
    Withheld,
)

# one and several of a kind; kinds that are not listed here or below are no news
_COUNTED: dict[type[Fact], tuple[str, str]] = {
    Repaired: ("broken JSON mended", "broken JSON mended {} times"),
    Coerced: ("a value converted", "{} values converted"),
    Renamed: ("a tool's name corrected", "{} tools' names corrected"),
    Dropped: ("a part dropped", "{} parts dropped"),
    Healed: ("the history mended", "the history mended in {} places"),
    Refused: ("text like a call left alone", "text like a call left alone {} times"),
    Unchecked: ("an unusable schema not checked", "{} unusable schemas not checked"),
    RuleSkipped: ("a rule of order left out", "{} rules of order left out"),
}
_DEFECTS = {
    "prose": "prose instead of a call",
    "announced": "a call that was only announced",
    "empty": "an empty reply",
    "unknown_tool": "an unknown tool",
    "wrong_tool": "a tool that was not allowed",
    "broken_arguments": "broken arguments",
    "invalid_arguments": "invalid arguments",
    "unreadable": "an unreadable call",
    "invalid_answer": "an invalid answer",
    "loop": "a repeated call",
    "step_missing": "a step left out",
    "not_continued": "a call that was not continued",
}


def in_words(facts: Iterable[Fact]) -> str:
    """Tell what was repaired and why the model was asked again, or nothing."""
    told: list[str] = []
    counts: dict[type[Fact], int] = {}
    rescued: list[str] = []
    for fact in facts:
        if isinstance(fact, Rescued):
            rescued.append(fact.syntax)
        elif type(fact) in _COUNTED:
            counts[type(fact)] = counts.get(type(fact), 0) + 1
        elif words := _words_of(fact):
            told.append(words)
    if rescued:
        how_many = "a call" if len(rescued) == 1 else f"{len(rescued)} calls"
        told.insert(0, f"{how_many} rescued from text ({', '.join(dict.fromkeys(rescued))})")
    told += (_COUNTED[kind][count > 1].format(count) for kind, count in counts.items())
    return ", ".join(dict.fromkeys(told))


def _words_of(fact: Fact) -> str:
    """Describe what is told one by one; nothing for what is no news."""
    told = ""
    match fact:
        case RejectedReply(defect):
            told = f"rejected {_DEFECTS.get(defect, defect)}"
        case LoopNoticed(tool, times):
            told = f"the same call of {tool} {times} times"
        case RoundsExceeded(rounds):
            told = f"an answer asked for after {rounds} rounds of tools"
        case Withheld():
            told = "no retry, as too many run already"
        case BrokeOff(tool):
            told = f"a call of {tool} broke off"
        case Compacted() | WindowFilled():
            told = _about_the_window(fact)
        case _:
            pass
    return told


def _about_the_window(fact: Compacted | WindowFilled) -> str:
    if isinstance(fact, WindowFilled):
        return "the window is full"
    return f"history cut from {fact.client} to {fact.sent} tokens" if fact.is_new else ""
