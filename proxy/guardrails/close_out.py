"""The close-out check: asks a model that ended a turn in text whether work remains.

`find_cause` decides whether a check is needed. `moves_prompt` decides whether the check would
change the prompt of earlier messages. `pick_new_calls` selects the calls for the client from the
model's reply to the check. All decisions depend on the transcript; no state is stored.
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

# A check requires at least this many remaining tokens: a call has about 64 tokens.
LEAST_TOKENS = 64
MARK = "_closeout"  # suffix of the ids of calls that a check caused

# If a failed result contains one of these words, no check is sent. If the user refused the call,
# another attempt would act against this refusal. If the effect of the call is unknown, another
# attempt may have the effect twice.
_IS_UNCERTAIN = re.compile(
    r"cancel|abort|interrupt|declin|reject|refus|den(?:y|ied)|disallow|forbid|by the user"
    r"|user (?:does|did)\S* (?:not )?(?:want|wish|allow|approve|confirm)"
    r"|not (?:approved|confirmed|permitted|known)|unknown (?:effect|outcome|state)|may have"
    r"|time[ds]?[ _-]?out|deadline exceed|took longer|no (?:answer|reply|response|result) within"
    r"|connection|disconnect|econn|went away|broke off",
    re.IGNORECASE,
)


class CloseOut(Enum):
    """The turns whose final text is checked.

    STRUCTURAL selects the turns whose latest result reports a failure with a flag or a member.
    ALWAYS selects all turns that used tools.
    """

    OFF = "off"
    STRUCTURAL = "structural"
    ALWAYS = "always"


class Cause(msgspec.Struct, frozen=True):
    """The cause of a check; a failed result also has its `tool` and its `error`."""

    name: Literal["failed_result", "always"]
    tool: str = ""
    error: str = ""


def find_cause(setting: CloseOut, messages: Messages, offer: OfferedTools) -> Cause | None:
    """Return the cause of a check, or None if no check is needed.

    `messages` is the client's history, to which the model has just replied with text.
    """
    since = since_user(messages)
    after_reply = takewhile(lambda message: message.role != "assistant", reversed(since))
    latest = [message for message in after_reply if message.role == "tool"]
    # A turn is checked only at its first final text.
    has_ended_before = any(message.role == "assistant" and not message.calls for message in since)
    if setting is CloseOut.OFF or not latest or has_ended_before or not _is_open(offer):
        return None
    if any(reports_failure(result) and _IS_UNCERTAIN.search(result.text) for result in latest):
        return None
    always = Cause("always") if setting is CloseOut.ALWAYS else None
    return _find_failure(latest[0], offer.completed) or always


def _is_open(offer: OfferedTools) -> bool:
    """Return whether the model could call tools, and could end its turn with any text."""
    calls, terminal = _calls_in_turn(offer.completed), offer.workflow.terminal_tools
    is_over = any(call.name in terminal and not call.has_failed for call in calls)
    is_free = offer.choice is ToolUse.AUTO and offer.answer_schema is None
    # Engines do not report that a stop string ended a reply, so the text may be unfinished.
    return bool(offer.tools) and is_free and not offer.stop_strings and not is_over


def _calls_in_turn(completed: Sequence[CompletedCall]) -> list[CompletedCall]:
    return [call for call in completed if call.turn == completed[-1].turn]


def _find_failure(result: Message, completed: Sequence[CompletedCall]) -> Cause | None:
    """Return the failure that a result reports with a flag or a member of its JSON, or None."""
    text = without_reminders(result.text)
    is_reported = bool(result.failed) or (result.failed is None and text.lstrip().startswith("{"))
    # A result that history repair changed or added does not come from the tool.
    if not (is_reported and reports_failure(result) and completed and completed[-1].result == text):
        return None
    return Cause("failed_result", completed[-1].name, read_error(text))


def moves_prompt(sent: Messages, replay: Replay) -> bool:
    """Return whether the chat template drops reasoning of `sent` after another user message.

    If it does, the prompt of the check does not begin with the prompt of the answer. The engine
    then has to process the prompt again, from the dropped reasoning on.
    """
    since = since_user(sent)
    return replay == "last" and replay_thoughts(since, "none") != since


def pick_new_calls(
    calls: Sequence[ToolCall], offer: OfferedTools, new_id: NewId
) -> tuple[ToolCall, ...]:
    """Return the calls for the client from the reply to a check; their ids end in `MARK`.

    Two kinds of calls are dropped: those that were already made since the last user message, and
    those that the model copied from a tool result.
    """
    earlier = [(call.name, call.arguments) for call in _calls_in_turn(offer.completed)]
    new_calls: list[ToolCall] = []
    for call in calls:
        arguments = parse_arguments(call.arguments)
        is_copied = are_repeated((WrittenCall(call.name, arguments),), offer.results)
        if not is_copied and (call.name, arguments) not in earlier:
            earlier.append((call.name, arguments))
            new_calls.append(replace(call, id=new_id() + MARK))
    return tuple(new_calls)
