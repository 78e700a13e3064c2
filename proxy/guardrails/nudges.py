"""Every sentence that asks a model again. Short, in the second person, naming the defect.

A nudge never repeats the bad output in full and never alters an earlier message: it is appended.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.conversation import json
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import NamedTool, ToolCall
from proxy.guardrails.offer import Offer

_MOST_NAMES = 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call of the model is answered with; `problem` is None for a call without defect."""

    call: ToolCall
    problem: str | None


def about_prose(written: str, offer: Offer) -> tuple[Message, ...]:
    """Answer prose where a call was expected."""
    return (*_said(written), user_message(f"You answered in plain text. {_what_to_do(offer)}"))


def about_silence(offer: Offer) -> tuple[Message, ...]:
    """Answer an empty reply."""
    return (user_message(f"Your reply was empty. {_what_to_do(offer)}"),)


def about_answer(written: str, problems: Sequence[str]) -> tuple[Message, ...]:
    """Answer an answer that is not in the form the client asked for."""
    text = f"Your answer has the wrong form: {'; '.join(problems)}. Answer with valid JSON only."
    return (*_said(written), user_message(text))


def about_calls(written: str, answers: Sequence[Answer], offer: Offer) -> tuple[Message, ...]:
    """Answer calls with a defect on their own channel: one tool result for each."""
    calls = tuple(answer.call for answer in answers)
    results = (tool_result(answer.call.id, _result(answer)) for answer in answers)
    return (assistant_message(written, calls), *results)


def about_broken_call(written: str, problem: str, offer: Offer) -> tuple[Message, ...]:
    """Answer a call whose arguments are not an object, which no history may contain."""
    text = f"Your tool call could not be read: {problem}. {_what_to_do(offer)}"
    return (*_said(written), user_message(text))


def unknown_tool(name: str, offer: Offer) -> str:
    """Describe a call of a tool that is not offered."""
    return f"{_quote(name)} is not a tool. Available: {_names(offer)}."


def wrong_tool(name: str, offer: Offer) -> str:
    """Describe a call of an offered tool other than the one the client demands."""
    return f"{_quote(name)} must not be called now. Call {_names(offer)}."


def invalid_arguments(complaints: Sequence[str]) -> str:
    """Describe arguments that violate the tool's schema."""
    return f"Invalid arguments: {'; '.join(complaints)}. Call the tool again with valid arguments."


def looping(name: str, times: int) -> str:
    """Describe a call that is made over and over with the same result."""
    return (
        f"You have called {name} with the same arguments {times} times and got the same result. "
        "Do something else, or answer with what you know."
    )


def about_loop(name: str, times: int) -> Message:
    """Warn a model that goes in circles, before it answers."""
    return user_message(looping(name, times))


def about_rounds(rounds: int) -> Message:
    """Ask for an answer after too many rounds of tool calls."""
    return user_message(
        f"You have used tools {rounds} times in a row. Do not call another one: "
        "answer now, with a summary of what you know and of what is missing."
    )


def steps_first(name: str, steps: Sequence[str], insistence: int) -> str:
    """Describe a call that comes too early, more firmly each time."""
    missing = ", ".join(steps[:_MOST_NAMES])
    match insistence:
        case 0:
            return f"{name} comes too early. First call: {missing}."
        case 1:
            return f"{name} still comes too early. You must call {missing} before it. Do that now."
        case _:
            return f"Stop calling {name}. The only calls allowed now are: {missing}."


def insist_on_json(nudge: tuple[Message, ...]) -> tuple[Message, ...]:
    """Tell the model the only form that the constrained attempt lets it write.

    The sentence joins the last message, so templates that demand alternating roles stay content.
    """
    sentence = 'Reply with one JSON object only: {"name": <tool>, "arguments": <object>}.'
    if not nudge:
        return (user_message(sentence),)
    *before, last = nudge
    text = f"{last.text} {sentence}"
    again = tool_result(last.tool_call_id, text) if last.tool_call_id else user_message(text)
    return (*before, again)


def _said(written: str) -> tuple[Message, ...]:
    return (assistant_message(written),) if written.strip() else ()


def _result(answer: Answer) -> str:
    if answer.problem is None:
        return "Not run: another call of the same reply was invalid. Repeat this call with it."
    return f"Error: {answer.problem}"


def _what_to_do(offer: Offer) -> str:
    if offer.respond is None:
        return f"Call a tool now. Available: {_names(offer)}."
    answer = f"call {offer.respond.name} with your message"
    if offer.has_final_form:
        answer = 'reply with an object of the type "final"'
    if not offer.tools:
        return f"No tool can be called now. To answer the user, {answer}."
    return f"Call one of the tools ({_names(offer)}); to answer the user, {answer}."


def _names(offer: Offer) -> str:
    if isinstance(offer.choice, NamedTool):
        return offer.choice.name
    names = [tool.name for tool in (offer.tools if offer.has_final_form else offer.everything)]
    listed = ", ".join(names[:_MOST_NAMES])
    return listed if len(names) <= _MOST_NAMES else f"{listed} and {len(names) - _MOST_NAMES} more"


def _quote(name: str) -> str:
    return json.dump_text(name[:64])
