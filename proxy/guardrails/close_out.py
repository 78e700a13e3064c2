"""The close-out check: a model that ended a turn in text is asked whether something is left to do.

`find_cause` decides whether it is asked, `pick_new_calls` which calls of its reply are made, and
`moves_prompt` whether the question would change the prompt of earlier messages. All of it is read
from the transcript, and no state is stored. `nudges` has the words.
"""

import re
from collections.abc import Sequence
from enum import Enum
from itertools import takewhile
from typing import Literal

import msgspec
from msgspec.structs import replace

from proxy.conversation.failures import reports_failure
from proxy.conversation.messages import Message, Messages
from proxy.conversation.reminders import without_reminders
from proxy.conversation.tools import ToolCall, ToolUse, WrittenCall
from proxy.guardrails.history_repair.history import replay_thoughts
from proxy.guardrails.model_quirks import Replay
from proxy.guardrails.offer import OfferedTools
from proxy.guardrails.rescue.copies import are_repeated
from proxy.guardrails.review import NewId
from proxy.guardrails.transcript import CompletedCall, parse_arguments, read_error, since_user

LEAST_TOKENS = 64  # that the client's limit has to leave
MARK = "_closeout"  # ends the ids of calls that a check brought

# behind such a failure pressing on would act against a person, or twice
_IS_UNCERTAIN = re.compile(
    r"cancel|abort|interrupt|declin|reject|refus|den(?:y|ied)|disallow|forbid|by the user"
    r"|user (?:does|did)\S* (?:not )?(?:want|wish|allow|approve|confirm)"
    r"|not (?:approved|confirmed|permitted|known)|unknown (?:effect|outcome|state)|may have"
    r"|time[ds]?[ _-]?out|deadline exceed|took longer|no (?:answer|reply|response|result) within"
    r"|connection|disconnect|econn|went away|broke off",
    re.IGNORECASE,
)


class CloseOut(Enum):
    """Which ends in text are asked about.

    STRUCTURAL are those behind a result which says itself that its call failed; ALWAYS are all that
    follow a use of tools.
    """

    OFF = "off"
    STRUCTURAL = "structural"
    ALWAYS = "always"


class Cause(msgspec.Struct, frozen=True):
    """Why an end is asked about; behind a failed result with its `tool` and its `error`."""

    name: Literal["failed_result", "always"]
    tool: str = ""
    error: str = ""


def find_cause(setting: CloseOut, messages: Messages, offer: OfferedTools) -> Cause | None:
    """Return why there may be something left behind these messages; None where nobody asks.

    The messages are the client's own, and the model has answered them in text.
    """
    said = since_user(messages)
    behind = takewhile(lambda one: one.role != "assistant", reversed(said))
    latest = [one for one in behind if one.role == "tool"]
    has_ended_before = any(one.role == "assistant" and not one.calls for one in said)
    if setting is CloseOut.OFF or not latest or has_ended_before or not _is_open(offer):
        return None
    if any(reports_failure(one) and _IS_UNCERTAIN.search(one.text) for one in latest):
        return None
    always = Cause("always") if setting is CloseOut.ALWAYS else None
    return _find_failure(latest[0], offer.completed) or always


def _is_open(offer: OfferedTools) -> bool:
    """Return whether the model was free to call, and free to end in any text."""
    made, terminal = _made_in_turn(offer.completed), offer.workflow.terminal_tools
    is_over = any(one.name in terminal and not one.has_failed for one in made)
    is_free = offer.choice is ToolUse.AUTO and offer.answer_schema is None
    # engines do not say that it was a stop string that ended a reply
    return bool(offer.tools) and is_free and not offer.stop_strings and not is_over


def _made_in_turn(completed: Sequence[CompletedCall]) -> list[CompletedCall]:
    return [one for one in completed if one.turn == completed[-1].turn]


def _find_failure(result: Message, completed: Sequence[CompletedCall]) -> Cause | None:
    """Return the failure that a result reports by a flag or a member; words alone are none."""
    text = without_reminders(result.text)
    is_told = bool(result.failed) or (result.failed is None and text.lstrip().startswith("{"))
    # a result that was mended, or has no call, is left alone
    if not (is_told and reports_failure(result) and completed and completed[-1].result == text):
        return None
    return Cause("failed_result", completed[-1].name, read_error(text))


def moves_prompt(sent: Messages, replay: Replay) -> bool:
    """Return whether the chat template drops thoughts of `sent` once the user says something."""
    said = since_user(sent)
    return replay == "last" and replay_thoughts(said, "none") != said


def pick_new_calls(
    calls: Sequence[ToolCall], offer: OfferedTools, new_id: NewId
) -> tuple[ToolCall, ...]:
    """Return those of the calls that a check brought which may be made, with marked ids.

    They are new since the user spoke, and stand in no result of a tool.
    """
    made = [(one.name, one.arguments) for one in _made_in_turn(offer.completed)]
    picked: list[ToolCall] = []
    for call in calls:
        arguments = parse_arguments(call.arguments)
        is_copied = are_repeated((WrittenCall(call.name, arguments),), offer.results)
        if not is_copied and (call.name, arguments) not in made:
            made.append((call.name, arguments))
            picked.append(replace(call, id=new_id() + MARK))
    return tuple(picked)
