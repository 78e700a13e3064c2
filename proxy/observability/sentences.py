"""What happened to a request in words: every fact, attempt and error, for people.

A page gets sentences, a line that is read in passing a few words; logs for programs, metrics and
headers have `proxy.facts.repairs` instead. The words of clients and models are cut and made visible
in sentences, so that any screen can show them; whoever prints the short ones has to do that.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from proxy import facts
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.facts import Fact


def escaped(text: str) -> str:
    """Show what is invisible: control characters, ANSI and bidi sequences, line separators."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        character
        if character.isprintable() and character != "\\"
        else character.encode("unicode_escape").decode()
        for character in text
    )


def visible_json(value: JsonValue) -> str:
    """Write a value as JSON on several lines, with escapes of JSON for all that is invisible."""
    lines = msgspec.json.format(json.dump(value), indent=2).decode().split("\n")
    return "\n".join(map(_visible, lines))


def _visible(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() else _json_escape(one) for one in line)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


_LONGEST = 120  # characters of a word that a client or a model chose
_MOST = 40  # sentences about one request
_NO_NEWS = frozenset((facts.Asked, facts.ToolRan))  # attempts and tools have rows of their own


class Words(NamedTuple):
    """A fact in words: `few` are for a line, "" where it is no news, `several` for many of them."""

    sentence: str
    few: str
    several: str = ""


RUNGS: Mapping[str, str] = MappingProxyType(
    {
        "as_asked": "Asked as the client did.",
        "raw": "Asked again, past the backend's own parser.",
        "nudged": "Asked again, with a hint of what was wrong.",
        "constrained": "Asked again, held to valid calls by a grammar.",
        "answer": "Asked again, held to the form of the answer by a grammar.",
    }
)
DEFECTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "prose": (
            "The model answered in prose although tools were on offer.",
            "prose instead of a call",
        ),
        "announced": (
            "The model only announced what it would do.",
            "a call that was only announced",
        ),
        "unknown_syntax": (
            "The model wrote a call as text, in a syntax that is not known.",
            "a call in an unknown syntax",
        ),
        "empty": ("The reply was empty.", "an empty reply"),
        "unknown_tool": ("It called a tool that does not exist.", "an unknown tool"),
        "wrong_tool": (
            "It called another tool than the one that was required.",
            "a tool that was not allowed",
        ),
        "broken_arguments": ("The arguments of a call were not JSON.", "broken arguments"),
        "invalid_arguments": (
            "The arguments of a call did not fit the tool's schema.",
            "invalid arguments",
        ),
        "unreadable": ("The backend could not read what the model wrote.", "an unreadable call"),
        "invalid_answer": (
            "The answer did not have the form that was asked for.",
            "an invalid answer",
        ),
        "loop": (
            "It repeated a call that had already given the same result.",
            "a repeated call",
        ),
        "step_missing": ("It skipped a step that has to come first.", "a step left out"),
        "not_continued": (
            "It did not go on with the call that it had begun.",
            "a call that was not continued",
        ),
    }
)
ERRORS: Mapping[str, str] = MappingProxyType(
    {
        "unavailable": "The backend could not be reached.",
        "timed_out": "The backend took too long.",
        "refused": "The backend refused the request.",
        "nonsense": "The backend broke its own protocol.",
        "context_overflow": "The prompt was longer than the window.",
        "invalid_request": "The request could not be put to the backend.",
        "loading": "The backend was still loading its model.",
        "failed": "The attempt failed.",
    }
)
_DROPPED: Mapping[str, str] = MappingProxyType(
    {
        "too_many_calls": "Calls beyond the most that one reply may have were left out.",
        "invented_result": "A tool result that the model had invented was left out.",
        "code_fence": "The code fence around the answer was taken off.",
        "parallel_call": "A second call was left out: the client wants one at a time.",
        "cut_off_call": "A call that broke off was left out.",
    }
)
_HEALED: Mapping[str, str] = MappingProxyType(
    {
        "unanswered_call": "a call without a result got one",
        "call_id": "a call got an id",
        "orphan_result": "a result without a call became plain text",
        "result_id": "a result was joined to its call",
        "content": "content without a meaning was replaced",
        "arguments": "the arguments of an earlier call were made valid",
        "type": "a call got its type",
        "description": "the description of a tool was replaced",
        "developer_role": "a developer message became a system message",
        "system_role": "a system message was moved to where the template takes it",
        "alternation": "messages in a row were joined",
        "control_token": "a control token was taken out",
    }
)


def sentences(happened: Iterable[Fact]) -> tuple[str, ...]:
    """Tell what was repaired, refused or asked for again, each once and in its order."""
    told = dict.fromkeys(words.sentence for words in map(words_of, happened) if words is not None)
    return (*told,)[:_MOST]


def in_few_words(happened: Iterable[Fact]) -> str:
    """Tell the same in one line, "" where nothing is to be told; foreign words are not escaped."""
    known = [*happened]
    syntaxes = [fact.syntax for fact in known if isinstance(fact, facts.Rescued)]
    told = [words for words in map(words_of, known) if words is not None and words.few]
    many = Counter(words.several for words in told if words.several)
    one = {words.several: words.few for words in told}
    parts = [words.few for words in told if not words.several]
    parts += (several.format(n) if n > 1 else one[several] for several, n in many.items())
    if syntaxes:
        how_many = "a call" if len(syntaxes) == 1 else f"{len(syntaxes)} calls"
        parts.insert(0, f"{how_many} rescued from text ({', '.join(dict.fromkeys(syntaxes))})")
    return ", ".join(dict.fromkeys(parts))


def words_of(fact: Fact) -> Words | None:
    """Put one fact in words; None for what is no news, such as a question."""
    if type(fact) in _NO_NEWS:
        return None
    match fact:
        case facts.Rescued() | facts.Repaired() | facts.Coerced() | facts.Renamed():
            return _repaired(fact)
        case facts.Refused() | facts.Unchecked() | facts.Omitted() | facts.RuleSkipped():
            return _left_alone(fact)
        case facts.Withheld() | facts.BrokeOff() | facts.LadderEnded() | facts.WindowFilled():
            return _ended(fact)
        case facts.LoopNoticed() | facts.FailuresNoticed() | facts.RoundsExceeded():
            return _noticed(fact)
        case _:
            return _changed(fact)


def attempt_sentence(kind: str) -> str:
    """Tell how an attempt was made."""
    return RUNGS.get(kind, f"Asked in another way ({_shown(kind)}).")


def problem_sentence(defect: str | None, error: str | None) -> str:
    """Tell what was wrong with an attempt, "" if nothing was."""
    if error is not None:
        return ERRORS.get(error, ERRORS["failed"])
    return defect_sentence(defect) if defect is not None else ""


def defect_sentence(defect: str) -> str:
    """Tell what was wrong with a reply."""
    if (known := DEFECTS.get(defect)) is not None:
        return known[0]
    return f"The reply was not good enough ({_shown(defect)})."


def _short_defect(defect: str) -> str:
    known = DEFECTS.get(defect)
    return defect if known is None else known[1]


def _repaired(fact: facts.Rescued | facts.Repaired | facts.Coerced | facts.Renamed) -> Words:
    tool = _shown(fact.tool)
    match fact:
        case facts.Rescued(syntax):
            told = f"A call written as text ({_shown(syntax)}) became a call of {tool}."
            return Words(told, "")  # counted together, with all their syntaxes
        case facts.Repaired():
            return Words(
                f"Broken JSON in a call of {tool} was read as what it plainly meant.",
                "broken JSON repaired",
                "broken JSON repaired {} times",
            )
        case facts.Coerced(pointer=pointer):
            where = _shown(pointer) or "A value"
            told = f"{where} of {tool} was converted to the right type."
            return Words(told, "a value converted", "{} values converted")
        case facts.Renamed(written):
            told = f"{_shown(written)} is not a tool and was taken for {tool}."
            return Words(told, "a tool's name corrected", "{} tools' names corrected")


def _left_alone(
    fact: facts.Refused | facts.Unchecked | facts.Omitted | facts.RuleSkipped,
) -> Words:
    match fact:
        case facts.Refused(reason):
            why = _shown(reason).replace("_", " ")
            few = "text like a call left alone"
            told = f"Text that looked like a call was left alone ({why})."
            return Words(told, few, f"{few} {{}} times")
        case facts.Unchecked(tool, problem):
            told = f"{_shown(tool)} could not be checked: {_shown(problem)}."
            return Words(told, "an unusable schema not checked", "{} unusable schemas not checked")
        case facts.Omitted(what):
            told = f"A part of the request means nothing here and was left out ({_shown(what)})."
            return Words(told, "")  # the same in every request of a client
        case facts.RuleSkipped(tool):
            told = f"A rule of order was skipped: {_shown(tool)} is not on offer."
            return Words(told, "a rule of order left out", "{} rules of order left out")


def _ended(
    fact: facts.Withheld | facts.BrokeOff | facts.LadderEnded | facts.WindowFilled,
) -> Words:
    match fact:
        case facts.Withheld():
            told = "It was not asked again: too many others were being asked again."
            return Words(told, "no retry, as too many run already")
        case facts.BrokeOff(tool):
            told = f"A call of {_shown(tool)} broke off after the client had seen its beginning."
            return Words(told, f"a call of {tool} broke off")
        case facts.LadderEnded():
            told = "No further attempt was allowed: the client got the most faithful reply."
            return Words(told, "no further attempt allowed")
        case facts.WindowFilled(window):
            told = f"The answer ended because the window of {window} tokens was full."
            return Words(told, "the window is full")


def _noticed(fact: facts.LoopNoticed | facts.FailuresNoticed | facts.RoundsExceeded) -> Words:
    match fact:
        case facts.LoopNoticed(tool, times):
            told = f"{_shown(tool)} was called {times} times with the same result."
            return Words(told, f"the same call of {tool} {times} times")
        case facts.FailuresNoticed(rounds):
            told = f"The last {rounds} rounds of tool calls all failed, and the model was told so."
            return Words(told, f"{rounds} rounds of failing tools noticed")
        case facts.RoundsExceeded(rounds):
            told = f"After {rounds} rounds of tool calls an answer was asked for."
            return Words(told, f"an answer asked for after {rounds} rounds of tools")


def _changed(fact: Fact) -> Words | None:
    """Tell what became of the conversation and of the reply."""
    match fact:
        case facts.RejectedReply(defect):
            return Words(defect_sentence(defect), f"rejected {_short_defect(defect)}")
        case facts.Healed(what):
            told = f"The history was repaired: {_HEALED.get(what, _shown(what))}."
            return Words(told, "the history repaired", "the history repaired in {} places")
        case facts.Dropped(what):
            unknown = f"A part of the reply was left out ({_shown(what)})."
            return Words(_DROPPED.get(what, unknown), "a part dropped", "{} parts dropped")
        case facts.Compacted(tier, sent=sent, client=client, is_new=True):
            told = f"The conversation was shortened to fit (tier {tier})."
            return Words(told, f"history cut from {client} to {sent} tokens")
        case _:
            return None


def _shown(word: str) -> str:
    """Make a foreign word fit for any screen."""
    return cut(word, _LONGEST)


def cut(text: str, longest: int = 200) -> str:
    """Make a foreign text visible and no longer than so many characters."""
    short = text if len(text) <= longest else text[:longest] + "..."
    return escaped(short)
