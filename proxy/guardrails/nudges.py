"""Every sentence that asks a model again. Short, in the second person, naming the defect.

A nudge never repeats the bad output in full and never alters an earlier message: it is appended.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.conversation import json
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import NamedTool, Tool, ToolCall
from proxy.guardrails.offer import OfferedTools
from proxy.guardrails.schemas.violations import Violation

_MOST_NAMES = 20
_DONE = "DONE"
_ANSWER = (
    "Do not call another tool: answer now, with a summary of what is known and what is missing."
)

# What stands where the result of a call would, as it was not run or not to its end.
POSTPONED = "Not run yet: look at the results of the other calls, then call it again."
NEVER_RUN = "Not run: the work was cancelled before."
CANCELLED = "Error: cancelled while it ran. Whether the call had an effect is not known."


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """What a call of the model is answered with; `problem` is None for a call without defect.

    What `is_taken` need not be repeated, because the client has it already.
    """

    call: ToolCall
    problem: str | None
    is_taken: bool = False


def correct_prose(written: str, offer: OfferedTools) -> tuple[Message, ...]:
    if offer.respond is None:
        text = f"You answered in plain text. {_what_to_do(offer)}"
    else:
        text = f"You answered in plain text. {_offer_ways_out(offer)}"
    return (*quote_reply(written), user_message(text))


def correct_announcement(written: str, offer: OfferedTools) -> tuple[Message, ...]:
    text = f"You said what you would do, and called no tool. {_offer_ways_out(offer)}"
    return (*quote_reply(written), user_message(text))


def correct_unknown_syntax(written: str, offer: OfferedTools) -> tuple[Message, ...]:
    unread = "You wrote a tool call as text, in a form that is not read: no tool ran."
    text = f"{unread} {_offer_ways_out(offer)}"
    return (*quote_reply(written), user_message(text))


def correct_early_answer(
    written: str, steps: Sequence[str], insistence: int
) -> tuple[Message, ...]:
    return (
        *quote_reply(written),
        user_message(describe_missing_steps("An answer", steps, insistence)),
    )


def correct_silence(offer: OfferedTools) -> tuple[Message, ...]:
    return (user_message(f"Your reply was empty. {_what_to_do(offer)}"),)


def correct_answer(written: str, problems: Sequence[str]) -> tuple[Message, ...]:
    text = f"Your answer has the wrong form: {'; '.join(problems)}. Answer with valid JSON only."
    return (*quote_reply(written), user_message(text))


def correct_calls(
    written: str, answers: Sequence[CallAnswer], offer: OfferedTools
) -> tuple[Message, ...]:
    """Answer calls with a defect on their own channel: one tool result for each."""
    calls = tuple(answer.call for answer in answers)
    results = (tool_result(answer.call.id, _result(answer)) for answer in answers)
    return (assistant_message(written, calls), *results)


def correct_broken_call(written: str, problem: str, offer: OfferedTools) -> tuple[Message, ...]:
    """Answer a call whose arguments are not an object, which no history may contain."""
    text = f"Your tool call could not be read: {problem}. {_what_to_do(offer)}"
    return (*quote_reply(written), user_message(text))


def demand_open_call(written: str) -> tuple[Message, ...]:
    """Answer a reply that leaves the call open that the client has seen the beginning of."""
    return (
        *quote_reply(written),
        user_message("You had begun a call, and it is still to be completed."),
    )


def describe_unknown_tool(name: str, offer: OfferedTools) -> str:
    return f"{_quote(name)} is not a tool. Available: {_names(offer)}."


def describe_wrong_tool(name: str, offer: OfferedTools) -> str:
    """Describe a call of an offered tool that the client does not let the model call now."""
    return f"{_quote(name)} must not be called now. Call {_names(offer)}."


def describe_invalid_arguments(violations: Sequence[Violation], offer: OfferedTools) -> str:
    """Describe arguments that violate the tool's schema.

    What is missing may be unknown to the model: where it may answer, it may also ask.
    """
    listed = "; ".join(str(one) for one in violations)
    problem = f"Invalid arguments: {listed}. Call the tool again with valid arguments."
    if not offer.may_answer or not any(one.is_absence for one in violations):
        return problem
    ask = "ask the user" if offer.respond is None else f"ask the user with {offer.respond.name}"
    if offer.final_form:
        ask = f"ask the user with {offer.final_form}"
    return f"{problem} If you do not know what is missing, do not guess: {ask}."


def describe_loop(name: str, times: int) -> str:
    return (
        f"The last {times} calls of {name} had the same arguments and the same result. "
        "Do something else, or answer with what is known."
    )


def warn_of_loop(name: str, times: int) -> Message:
    return _note(describe_loop(name, times))


def report_withheld_call(written: str, offer: OfferedTools) -> tuple[Message, ...]:
    """Say that a call that goes in circles was not made: a note, and no result of a tool."""
    loop = offer.loop
    name, times = ("", 0) if loop is None else (loop.name, loop.times)
    return (
        *quote_reply(written),
        _note(f"{name} was not called again. {describe_loop(name, times)}"),
    )


def demand_answer(rounds: int) -> Message:
    """Ask for an answer after too many rounds of tool calls that brought nothing new."""
    return _note(
        f"Tools were used {rounds} times in a row, and the last results were nothing new. {_ANSWER}"
    )


def demand_last_answer(rounds: int) -> Message:
    """Ask for an answer after as many rounds of tool calls as there may be."""
    return _note(f"Tools were used {rounds} times in a row, which is the limit. {_ANSWER}")


def warn_of_failures(rounds: int) -> Message:
    return _note(
        f"Every tool call of the last {rounds} rounds failed. Read the errors before you go on: "
        "call a tool in another way, or tell the user what does not work and ask for what you need."
    )


def describe_missing_steps(name: str, steps: Sequence[str], insistence: int) -> str:
    """Describe a call that comes too early, more firmly each time."""
    missing = ", ".join(steps[:_MOST_NAMES])
    match insistence:
        case 0:
            return f"{name} comes too early. First call: {missing}."
        case 1:
            return f"{name} still comes too early. You must call {missing} before it. Do that now."
        case _:
            return f"Stop calling {name}. The only calls allowed now are: {missing}."


def keep_calls(nudge: tuple[Message, ...], name: str, beginning: str) -> tuple[Message, ...]:
    """Ask for a call of `name` that begins as the client has seen it.

    `beginning` is the text of its arguments so far, nothing where that is too long to repeat.
    """
    exactly = f" exactly with {beginning}" if beginning else " with the same values as before"
    return _extend(nudge, f"Call {name} again, and begin its arguments{exactly}")


def is_done(written: str) -> bool:
    """Return whether a reply is the word by which a model says that its answer was complete."""
    return _strip_marks(written) == _DONE


def can_become_done(written: str) -> bool:
    return _DONE.startswith(_strip_marks(written))


def _strip_marks(written: str) -> str:
    return written.strip().strip(".!*`\"'").upper()


def insist_on_json(nudge: tuple[Message, ...]) -> tuple[Message, ...]:
    """Tell the model the only form that the constrained attempt lets it write.

    The sentence joins the last message, so templates that demand alternating roles stay content.
    """
    return _extend(
        nudge, 'Reply with one JSON object only: {"name": <tool>, "arguments": <object>}.'
    )


def _extend(nudge: tuple[Message, ...], sentence: str) -> tuple[Message, ...]:
    if not nudge:
        return (user_message(sentence),)
    *before, last = nudge
    text = f"{last.text} {sentence}"
    again = tool_result(last.tool_call_id, text) if last.tool_call_id else user_message(text)
    return (*before, again)


def _note(text: str) -> Message:
    """Make a message that nobody can take for a tool's result, or for the user's own words."""
    return user_message(f"[Note on this conversation, not a tool result: {text}]")


def _offer_ways_out(offer: OfferedTools) -> str:
    """Ask for the call that was meant, if one was, and else for nothing that anybody acts upon."""
    if offer.final_form and offer.respond is not None:
        done = f"give it again, with {offer.final_form}"
    elif offer.respond is not None:
        done = f"call {offer.respond.name} with an empty message"
    else:
        done = f"write {_DONE}"
    names = _names(offer, offer.tools)
    call = f"If you meant to call a tool, call it now ({names}). " if offer.tools else ""
    return f"{call}If your answer was complete, {done}."


def quote_reply(written: str) -> tuple[Message, ...]:
    """Put what the model wrote into the history, if it wrote anything."""
    return (assistant_message(written),) if written.strip() else ()


def _result(answer: CallAnswer) -> str:
    if answer.is_taken:
        return "Noted, and going to be run. Do not repeat this call."
    if answer.problem is None:
        return "Not run: another call of the same reply was invalid. Repeat this call with it."
    return f"Error: {answer.problem}"


def _what_to_do(offer: OfferedTools) -> str:
    if offer.respond is None:
        return f"Call a tool now. Available: {_names(offer)}."
    answer = f"call {offer.respond.name} with your message"
    if offer.final_form:
        answer = f"reply with {offer.final_form}"
    if not offer.tools:
        return f"No tool can be called now. To answer the user, {answer}."
    return f"Call one of the tools ({_names(offer)}); to answer the user, {answer}."


def _names(offer: OfferedTools, tools: Sequence[Tool] | None = None) -> str:
    if isinstance(offer.choice, NamedTool):
        return offer.choice.name
    shown = offer.tools if offer.final_form else offer.everything
    named = [tool.name for tool in (shown if tools is None else tools)]
    names = [name for name in named if offer.may_call(name)]
    listed = ", ".join(names[:_MOST_NAMES])
    return listed if len(names) <= _MOST_NAMES else f"{listed} and {len(names) - _MOST_NAMES} more"


def _quote(name: str) -> str:
    return json.dump_text(name[:64])
