"""What happened to a request, in sentences: every fact, attempt and error, for people.

The words of clients and models in them are cut and made visible, so that any screen can show them.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from proxy import facts
from proxy.facts import Fact
from proxy.observability.escaping import escaped

_LONGEST = 120  # characters of a word that a client or a model chose
_MOST = 40  # sentences about one request

RUNGS: Mapping[str, str] = MappingProxyType(
    {
        "as_asked": "Asked as the client did.",
        "raw": "Asked again, past the backend's own parser.",
        "nudged": "Asked again, with a hint of what was wrong.",
        "constrained": "Asked again, held to valid calls by a grammar.",
        "answer": "Asked again, held to the form of the answer by a grammar.",
    }
)
DEFECTS: Mapping[str, str] = MappingProxyType(
    {
        "prose": "The model answered in prose although tools were on offer.",
        "announced": "The model only announced what it would do.",
        "empty": "The reply was empty.",
        "unknown_tool": "It called a tool that does not exist.",
        "wrong_tool": "It called another tool than the one that was required.",
        "broken_arguments": "The arguments of a call were no JSON.",
        "invalid_arguments": "The arguments of a call did not fit the tool's schema.",
        "unreadable": "The backend could not read what the model wrote.",
        "invalid_answer": "The answer did not have the form that was asked for.",
        "loop": "It repeated a call that had already given the same result.",
        "step_missing": "It skipped a step that has to come first.",
        "not_continued": "It did not go on with the call that it had begun.",
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
    """Tell what was mended, refused or asked for again, each once and in its order."""
    told = dict.fromkeys(filter(None, map(sentence, happened)))
    return (*told,)[:_MOST]


def sentence(fact: Fact) -> str:
    """Tell one fact; "" for what is no news, such as a question."""
    match fact:
        case facts.Rescued() | facts.Repaired() | facts.Coerced() | facts.Renamed():
            return _mended(fact)
        case facts.Dropped(what):
            return _DROPPED.get(what, f"A part of the reply was left out ({_shown(what)}).")
        case facts.RejectedReply(defect):
            return defect_sentence(defect)
        case facts.Refused() | facts.Unchecked() | facts.Omitted() | facts.RuleSkipped():
            return _left_alone(fact)
        case facts.Withheld() | facts.BrokeOff() | facts.LadderEnded():
            return _ended(fact)
        case _:
            return _noticed(fact)


def rung_sentence(rung: str) -> str:
    """Tell how an attempt was made."""
    return RUNGS.get(rung, f"Asked in another way ({_shown(rung)}).")


def problem_sentence(defect: str | None, error: str | None) -> str:
    """Tell what was wrong with an attempt, "" if nothing was."""
    if error is not None:
        return ERRORS.get(error, ERRORS["failed"])
    return defect_sentence(defect) if defect is not None else ""


def defect_sentence(defect: str) -> str:
    """Tell what was wrong with a reply."""
    return DEFECTS.get(defect, f"The reply was not good enough ({_shown(defect)}).")


def _mended(fact: facts.Rescued | facts.Repaired | facts.Coerced | facts.Renamed) -> str:
    tool = _shown(fact.tool)
    match fact:
        case facts.Rescued(syntax):
            return f"A call written as text ({_shown(syntax)}) became a call of {tool}."
        case facts.Repaired():
            return f"Broken JSON in a call of {tool} was read as what it plainly meant."
        case facts.Coerced(pointer=pointer):
            return f"{_shown(pointer) or 'A value'} of {tool} was converted to the right type."
        case facts.Renamed(written):
            return f"{_shown(written)} is not a tool and was taken for {tool}."


def _left_alone(
    fact: facts.Refused | facts.Unchecked | facts.Omitted | facts.RuleSkipped,
) -> str:
    match fact:
        case facts.Refused(reason):
            why = _shown(reason).replace("_", " ")
            return f"Text that looked like a call was left alone ({why})."
        case facts.Unchecked(tool, problem):
            return f"{_shown(tool)} could not be checked: {_shown(problem)}."
        case facts.Omitted(what):
            return f"A part of the request means nothing here and was left out ({_shown(what)})."
        case facts.RuleSkipped(tool):
            return f"A rule of order was skipped: {_shown(tool)} is not on offer."


def _ended(fact: facts.Withheld | facts.BrokeOff | facts.LadderEnded) -> str:
    if isinstance(fact, facts.Withheld):
        return "It was not asked again: too many others were being asked again."
    if isinstance(fact, facts.LadderEnded):
        return "No further attempt was allowed: the client got the most faithful reply."
    return f"A call of {_shown(fact.tool)} broke off after the client had seen its beginning."


def _noticed(fact: Fact) -> str:
    told = ""
    match fact:
        case facts.Healed(what):
            told = f"The history was mended: {_HEALED.get(what, _shown(what))}."
        case facts.LoopNoticed(tool, times):
            told = f"{_shown(tool)} was called {times} times with the same result."
        case facts.FailuresNoticed(rounds):
            told = f"The last {rounds} rounds of tool calls have all failed, and it was told so."
        case facts.RoundsExceeded(rounds):
            told = f"After {rounds} rounds of tool calls an answer was asked for."
        case facts.WindowFilled(window):
            told = f"The answer ended because the window of {window} tokens was full."
        case facts.Compacted(is_new=True):
            told = f"The conversation was shortened to fit (tier {fact.tier})."
        case _:
            pass
    return told


def _shown(word: str) -> str:
    """Make a foreign word fit for any screen."""
    return cut(word, _LONGEST)


def cut(text: str, longest: int = 200) -> str:
    """Make a foreign text visible and no longer than so many characters."""
    short = text if len(text) <= longest else text[:longest] + "..."
    return escaped(short)
