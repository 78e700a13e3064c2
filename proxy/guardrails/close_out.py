"""The close-out check: asks a model that ended a turn in text whether work remains.

`find_cause` decides about the check, `pick_new_calls` which calls of its reply are made, and
`moves_prompt` whether the check would change the prompt of earlier messages. All decisions depend
on the transcript; no state is stored.
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

LEAST_TOKENS = 64  # of the client's limit that must remain for a check: a call needs about as many
MARK = "_closeout"  # suffix of the ids of calls that a check caused

# After such a failure, another attempt would act against a person's will, or act twice.
_IS_UNCERTAIN = re.compile(
    r"cancel|abort|interrupt|declin|reject|refus|den(?:y|ied)|disallow|forbid|by the user"
    r"|user (?:does|did)\S* (?:not )?(?:want|wish|allow|approve|confirm)"
    r"|not (?:approved|confirmed|permitted|known)|unknown (?:effect|outcome|state)|may have"
    r"|time[ds]?[ _-]?out|deadline exceed|took longer|no (?:answer|reply|response|result) within"
    r"|connection|disconnect|econn|went away|broke off",
    re.IGNORECASE,
)


class CloseOut(Enum):
    """The ends in text that are checked.

    STRUCTURAL: ends after a result with a flag or a member that reports a failure. ALWAYS: all ends
    after a use of tools.
    """

    OFF = "off"
    STRUCTURAL = "structural"
    ALWAYS = "always"


class Cause(msgspec.Struct, frozen=True):
    """The cause of a check; for a failed result with its `tool` and its `error`."""

    name: Literal["failed_result", "always"]
    tool: str = ""
    error: str = ""


def find_cause(setting: CloseOut, messages: Messages, offer: OfferedTools) -> Cause | None:
    """Return the cause of a check after these messages, None without a check.

    The messages are those of the client, and the model has answered them in text.
    """
    since = since_user(messages)
    after_reply = takewhile(lambda message: message.role != "assistant", reversed(since))
    latest = [message for message in after_reply if message.role == "tool"]
    has_ended_before = any(message.role == "assistant" and not message.calls for message in since)
    if setting is CloseOut.OFF or not latest or has_ended_before or not _is_open(offer):
        return None
    if any(reports_failure(result) and _IS_UNCERTAIN.search(result.text) for result in latest):
        return None
    always = Cause("always") if setting is CloseOut.ALWAYS else None
    return _find_failure(latest[0], offer.completed) or always


def _is_open(offer: OfferedTools) -> bool:
    """Return whether the model was free to call, and free to end in any text."""
    made, terminal = _made_in_turn(offer.completed), offer.workflow.terminal_tools
    is_over = any(call.name in terminal and not call.has_failed for call in made)
    is_free = offer.choice is ToolUse.AUTO and offer.answer_schema is None
    # engines do not report that a stop string ended a reply
    return bool(offer.tools) and is_free and not offer.stop_strings and not is_over


def _made_in_turn(completed: Sequence[CompletedCall]) -> list[CompletedCall]:
    return [call for call in completed if call.turn == completed[-1].turn]


def _find_failure(result: Message, completed: Sequence[CompletedCall]) -> Cause | None:
    """Return the failure that a result reports with a flag or a member, not only in words."""
    text = without_reminders(result.text)
    is_reported = bool(result.failed) or (result.failed is None and text.lstrip().startswith("{"))
    # A result that history repair changed or added says nothing about the tool.
    if not (is_reported and reports_failure(result) and completed and completed[-1].result == text):
        return None
    return Cause("failed_result", completed[-1].name, read_error(text))


def moves_prompt(sent: Messages, replay: Replay) -> bool:
    """Return whether the chat template drops reasoning of `sent` after another user message.

    Then the prompt of the check would differ from that of the answer before its end, and the engine
    would read all of it again.
    """
    since = since_user(sent)
    return replay == "last" and replay_thoughts(since, "none") != since


def pick_new_calls(
    calls: Sequence[ToolCall], offer: OfferedTools, new_id: NewId
) -> tuple[ToolCall, ...]:
    """Return the calls of the reply to a check that may be made, with marked ids.

    They are new since the last user message, and not copied from the result of a tool.
    """
    made = [(call.name, call.arguments) for call in _made_in_turn(offer.completed)]
    picked: list[ToolCall] = []
    for call in calls:
        arguments = parse_arguments(call.arguments)
        is_copied = are_repeated((WrittenCall(call.name, arguments),), offer.results)
        if not is_copied and (call.name, arguments) not in made:
            made.append((call.name, arguments))
            picked.append(replace(call, id=new_id() + MARK))
    return tuple(picked)
