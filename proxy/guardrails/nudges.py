"""Writes the messages to a model after a rejected reply, or when its calls are in a loop.

The callers decide whether a message is needed. A nudge is short, addresses the model as "you", and
names the defect. It is appended to the history and changes no earlier message. The texts were
measured with models, so measure again after each changed word (`python -m benchmarks real --model
FILE.gguf`).
"""

import re
from collections.abc import Collection, Sequence

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import NamedTool, Tool, ToolCall, WrittenCall
from proxy.facts import cut
from proxy.guardrails.offer import OfferedTools
from proxy.guardrails.schemas.violations import Violation
from proxy.guardrails.transcript import CompletedCall, read_error

_MOST_NAMES = 20  # names of tools
_MOST_QUOTED = 400  # characters of arguments that the client has received
_MOST_ERROR = 200  # characters of the arguments or the result of a call
_MOST_OPEN = 8  # values of the request that no call has used
_MOST_LISTED = 5  # executed calls
_MOST_VALUES = 3  # invented values
_MOST_VALUE = 80  # characters of an invented value
_JSON_SIGNS = str.maketrans("", "", '{}[]"')
_DONE = "DONE"  # one word, so that the check of a finished answer costs few tokens
_FORM = '{"name": <tool>, "arguments": <object>}'
_FIRST = f"Call the tool that is needed first. Write only {_FORM}."
# Small models copy nudges instead of answering. `copies_nudge` recognizes the copied nudges by
# these beginnings.
_SO_FAR, _NOTE = "Done so far: ", "[Note on this conversation"
_FAILED = "Do not make this call again."
_DESCRIBED, _WRITE = "You only described this call", "To make the call, write only:"
_NEXT = "has run. Now do the next step"
_COPIED = (_SO_FAR, _NOTE, _FAILED, _DESCRIBED, _WRITE)
_LOOP = re.compile(r"The last \d+ calls of \S+ had the same arguments")
_MAY_BE_LOOP = re.compile(r"The last(?: |\Z)(?:\d.{0,80})?\Z", re.DOTALL)
_ANSWER = (
    "Do not call another tool: answer now, with a summary of what is known and what is missing."
)

# `no_function` is a call with which a model states that no tool fits. If the reply is only this
# call, the client receives this answer.
NO_TOOL_FITS = "None of the tools fits this request."

# The results of calls that did not run, or did not finish.
POSTPONED = "Not run yet: look at the results of the other calls, then call it again."
NEVER_RUN = "Not run: the work was cancelled before."
CANCELLED = "Error: cancelled while it ran. Whether the call had an effect is not known."


def correct_prose(reply: str, offer: OfferedTools) -> tuple[Message, ...]:
    demand = _demand_call(offer) if offer.respond is None else _ask_what_was_meant(offer)
    return _append(reply, f"You answered in plain text. {demand}")


def correct_announcement(reply: str, offer: OfferedTools) -> tuple[Message, ...]:
    problem = "You said what you would do, and called no tool."
    return _append(reply, f"{problem} {_ask_what_was_meant(offer)}")


def demand_next_step(reply: str, name: str) -> tuple[Message, ...]:
    """Demand a call that the model explained to the user; `name` is its tool, "" if unknown.

    When a nudge said that the user cannot call tools, Qwen2.5-Coder 1.5B repeated its explanation
    in 5 of 6 tasks. When a nudge demanded only the call, it made the right call in 6 of 6.
    """
    call = f"call {_quote(name)} now" if name else "call the tool now"
    return _append(reply, f"Do not explain it. Do it: {call}. Write only {_FORM}.")


def correct_unknown_syntax(offer: OfferedTools) -> tuple[Message, ...]:
    unread = "You wrote a tool call as text, in a form that is not read: no tool ran."
    return (user_message(f"{unread} {_ask_what_was_meant(offer)}"),)


def correct_foreign_call(name: str, offer: OfferedTools) -> tuple[Message, ...]:
    """Ask for an answer or another call after a reply that called only an unknown tool."""
    wrong = describe_unknown_tool(name, offer)
    return (user_message(f"{wrong} Answer me in plain words, or call one of these tools."),)


def correct_doubtful_call(reply: str, offer: OfferedTools) -> tuple[Message, ...]:
    """Ask whether the model meant the call in its reply; `reply` is the text without that call."""
    doubt = "A tool call stands in your text, and it is not clear whether you mean it: no tool ran."
    return _append(reply, f"{doubt} {_ask_what_was_meant(offer)}")


def report_executed_calls(
    reply: str, offer: OfferedTools, open_values: Sequence[str]
) -> tuple[Message, ...]:
    """Ask for the next step, or list the executed calls with their results and ask for an answer.

    The next step is requested if there are `open_values`: values that the request names and no call
    has used. Of twenty wordings that were measured with Qwen2.5-Coder 0.5B and 1.5B, these two led
    to the fewest repetitions. Rejected wordings:

    - A quotation of the request: the 0.5B repeated the request.
    - A note as the result of the repeated call: both models repeated the call.
    - A list of calls before the next step: the 1.5B copied the list.
    """
    if open_values:
        step = f"{offer.executed[-1].name} {_NEXT}, about {', '.join(open_values[:_MOST_OPEN])}"
        return _append(reply, f"{step}: call the tool. Write only {_FORM}.")
    demand = (
        "If a part of my request is not done yet, call the tool for it now. "
        "If all is done, tell me the outcome in one plain sentence."
    )
    return _append(reply, f"{_SO_FAR}{_list_executed(offer)}.\n{demand}")


def report_failed_call(failed: CompletedCall) -> tuple[Message, ...]:
    """Ask for another call after a call that failed and would fail again.

    When a nudge said that the same call would fail again, Qwen2.5-Coder 1.5B copied or explained
    the error in 7 of 7 tasks. When a nudge demanded the call that is needed first, it made another
    call in 7 of 7 tasks.
    """
    error = cut(read_error(failed.result).strip(), _MOST_ERROR)
    return (user_message(f"{_FAILED} It failed: {error} {_FIRST}"),)


def demand_ending(offer: OfferedTools) -> tuple[Message, ...]:
    """Ask for an answer in words, as the last resort after tools have run.

    The results are reported in sentences, because Qwen2.5-Coder 0.5B paraphrases sentences. Of 20
    answers after a list ("Done so far: send_mail -> ok: true"), 7 were copies of the list.
    """
    done = report_results(offer)
    return (user_message(f"{done}\nTell me the outcome in one plain sentence."),)


def report_results(offer: OfferedTools) -> str:
    """Report the latest results in sentences.

    The client receives this report as the answer if the model writes no answer.
    """
    return " ".join(
        f"{call.name} returned {_in_words(call.result).rstrip('.')}."
        for call in offer.executed[-_MOST_LISTED:]
    )


def _in_words(result: str) -> str:
    """Remove the punctuation of JSON, which a 0.5B model copies into its answer."""
    text = " ".join(result.split())
    if text.startswith(("{", "[")):
        text = text.translate(_JSON_SIGNS)
    return cut(text.strip(), _MOST_ERROR)


def correct_misplaced_call(calls: Sequence[WrittenCall]) -> tuple[Message, ...]:
    """Ask for the calls that the model wrote inside the markup of a tool result."""
    wrong = "You wrote this inside the markup of a tool result, so no tool ran."
    return (user_message(f"{wrong} If you mean the call, write only: {_write_call(calls)}"),)


def correct_described_call(reply: str, calls: Sequence[WrittenCall]) -> tuple[Message, ...]:
    """Demand a call that the model described in words after tools had run.

    `reply` is the model's text without the described call. The nudge does not offer `DONE` as an
    alternative, because Qwen2.5-Coder 1.5B wrote `DONE` instead of the call in 3 of 3 tasks.
    """
    wrong = f"{_DESCRIBED}, so no tool ran."
    return _append(reply, f"{wrong} {_WRITE} {_write_call(calls)}")


def _write_call(calls: Sequence[WrittenCall]) -> str:
    if not calls:
        return _FORM
    call: JsonObject = {"name": calls[0].name, "arguments": calls[0].arguments}
    return json.dump_text(call)


def correct_invented_values(
    reply: str, name: str, values: Sequence[str], *, is_open: bool
) -> tuple[Message, ...]:
    """Ask whether a call with values that occur nowhere in the conversation is needed.

    If a part of the request `is_open`, the nudge demands the call that is needed before this call:
    its result may contain the missing values.
    """
    listed = ", ".join(json.dump_text(cut(value, _MOST_VALUE)) for value in values[:_MOST_VALUES])
    unknown = f"{name} was not called: {listed} occurs nowhere in this conversation."
    if is_open:
        text = f"{unknown} {_FIRST}"
    else:
        text = (
            f"{unknown} Answer me in plain words, unless my request really needs this call: "
            "then make it again, with the right values."
        )
    return _append(reply, text)


def _list_executed(offer: OfferedTools) -> str:
    done = [call for call in offer.executed if not call.has_failed]
    return "; ".join(
        f"{call.name}({cut(json.dump_text(call.arguments), _MOST_ERROR)})"
        f" -> {cut(call.result.strip(), _MOST_ERROR).rstrip('.')}"
        for call in done[-_MOST_LISTED:]
    )


def correct_early_answer(reply: str, steps: Sequence[str], insistence: int) -> tuple[Message, ...]:
    return _append(reply, describe_missing_steps("An answer", steps, insistence))


def correct_silence(offer: OfferedTools) -> tuple[Message, ...]:
    return (user_message(f"Your reply was empty. {_demand_call(offer)}"),)


def ask_for_words() -> tuple[Message, ...]:
    return (user_message("You cannot call a tool now. Answer in words."),)


def correct_cut_call(reply: str, offer: OfferedTools) -> tuple[Message, ...]:
    problem = "Your reply was cut off before the call was complete: make it shorter."
    return _append(reply, f"{problem} {_demand_call(offer)}")


def correct_answer(reply: str, problems: Sequence[str]) -> tuple[Message, ...]:
    wrong = f"Your answer has the wrong form: {'; '.join(problems)}."
    return _append(reply, f"{wrong} Answer with valid JSON only.")


def correct_calls(
    reply: str, answers: Sequence[tuple[ToolCall, str | None]], sent_ids: Collection[str] = ()
) -> tuple[Message, ...]:
    """Answer each rejected call with a tool result that states the call's problem.

    `answers` pairs each call with its problem. The problem is None for a call that did not run
    because other calls were invalid. The client already has the calls with the ids `sent_ids`, so
    the model must not repeat these calls.
    """
    results: list[Message] = []
    for call, problem in answers:
        text = f"Error: {problem}"
        if call.id in sent_ids:
            text = "Noted, and going to be run. Do not repeat this call."
        elif problem is None:
            text = "Not run: another call of the same reply was invalid. Repeat this call with it."
        results.append(tool_result(call.id, text))
    return (assistant_message(reply, tuple(call for call, _ in answers)), *results)


def correct_broken_call(reply: str, problem: str, offer: OfferedTools) -> tuple[Message, ...]:
    """Ask for a correction of a call whose arguments are not an object.

    `reply` is the text next to the call. The call itself is not quoted, because chat templates
    parse the arguments of all calls in the history and fail on broken arguments.
    """
    return _append(reply, f"Your tool call could not be read: {problem}. {_demand_call(offer)}")


def demand_completed_call(reply: str) -> tuple[Message, ...]:
    """Demand the completion of a call whose beginning the client has already received."""
    return _append(reply, "You had begun a call, and it is still to be completed.")


def ask_for_remaining_work(reply: str, tool: str = "", error: str = "") -> tuple[Message, ...]:
    """Ask after an answer whether work remains; report the `error` of a failed call of `tool`."""
    prompt = (
        "If something that was asked for is not done yet, do it now with a tool. "
        f"Otherwise answer only {_DONE}."
    )
    if error:
        text = json.dump_text(cut(error, _MOST_ERROR))
        prompt = (
            f"The call of {_quote(tool)} failed with: {text}. If something else can be tried, call "
            f"it. If not, or if nothing is left to do, answer only {_DONE}."
        )
    return _append(reply, prompt)


def describe_unknown_tool(name: str, offer: OfferedTools) -> str:
    return f"{_quote(name)} is not a tool. Available: {_names(offer)}."


def describe_wrong_tool(name: str, offer: OfferedTools) -> str:
    return f"{_quote(name)} must not be called now. Call {_names(offer)}."


def describe_invalid_arguments(violations: Sequence[Violation], offer: OfferedTools) -> str:
    """Describe the violations. If an answer is allowed, suggest asking for missing values."""
    listed = "; ".join(map(str, violations))
    problem = f"Invalid arguments: {listed}. Call the tool again with valid arguments."
    if not offer.may_answer or not any(violation.is_absence for violation in violations):
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


def report_withheld_call(reply: str, offer: OfferedTools) -> tuple[Message, ...]:
    """Report that a call in a loop did not run.

    The report is a note and not a tool result, because `reply` is quoted without the call to which
    a result would belong.
    """
    name, times = ("", 0) if offer.loop is None else (offer.loop.name, offer.loop.times)
    note = _note(f"{name} was not called again. {describe_loop(name, times)}")
    return (*quote_reply(reply), note)


def demand_answer(rounds: int) -> Message:
    return _note(
        f"Tools were used {rounds} times in a row, and the last results were nothing new. {_ANSWER}"
    )


def demand_last_answer(rounds: int) -> Message:
    return _note(f"Tools were used {rounds} times in a row, which is the limit. {_ANSWER}")


def warn_of_failures(rounds: int) -> Message:
    return _note(
        f"Every tool call of the last {rounds} rounds failed. Read the errors before you go on: "
        "call a tool in another way, or tell the user what does not work and ask for what you need."
    )


def describe_missing_steps(name: str, steps: Sequence[str], insistence: int) -> str:
    missing = ", ".join(steps[:_MOST_NAMES])
    match insistence:
        case 0:
            return f"{name} comes too early. First call: {missing}."
        case 1:
            return f"{name} still comes too early. You must call {missing} before it. Do that now."
        case _:
            return f"Stop calling {name}. The only calls allowed now are: {missing}."


def demand_same_call(nudge: tuple[Message, ...], name: str, beginning: str) -> tuple[Message, ...]:
    """Demand a call of `name` with the `beginning` of arguments that the client has received."""
    is_quotable = 0 < len(beginning) <= _MOST_QUOTED
    start = f"exactly with {beginning}" if is_quotable else "with the same values as before"
    return _extend(nudge, f"Call {name} again, and begin its arguments {start}")


def is_done(reply: str) -> bool:
    """Return whether a reply is only the word `DONE`."""
    return _strip_marks(reply) == _DONE


def may_be_about_nudge(reply: str) -> bool:
    """Return whether a reply with this beginning may become `DONE` or a copy of a nudge."""
    return _DONE.startswith(_strip_marks(reply)) or copies_nudge(reply, is_complete=False)


def copies_nudge(reply: str, *, is_complete: bool = True) -> bool:
    """Return whether a reply begins with a copy of a nudge.

    If `is_complete` is False, also return True if more text may make the reply a copy.
    """
    text = reply.strip()
    after_name = text.partition(" ")[2]  # some nudges begin with the name of a tool
    if text.startswith(_COPIED) or after_name.startswith(_NEXT) or _LOOP.match(text):
        return True
    may_begin = any(note.startswith(text) for note in (*_COPIED, "The last"))
    may_begin |= _NEXT.startswith(after_name)
    return not is_complete and (may_begin or _MAY_BE_LOOP.match(text) is not None)


def _strip_marks(reply: str) -> str:
    return reply.strip().strip(".!*`\"'").upper()


def insist_on_json(nudge: tuple[Message, ...]) -> tuple[Message, ...]:
    """Add the demand for a JSON object to the last message of a nudge.

    The demand is not a separate message, because some templates reject two messages of the same
    role in a row.
    """
    return _extend(nudge, f"Reply with one JSON object only: {_FORM}.")


def _extend(nudge: tuple[Message, ...], sentence: str) -> tuple[Message, ...]:
    if not nudge:
        return (user_message(sentence),)
    *before, last = nudge
    text, call_id = f"{last.text} {sentence}", last.tool_call_id
    return (*before, tool_result(call_id, text) if call_id else user_message(text))


def _note(text: str) -> Message:
    """Write a message that a model does not mistake for a tool result or for a user's request."""
    return user_message(f"{_NOTE}, not a tool result: {text}]")


def _ask_what_was_meant(offer: OfferedTools) -> str:
    """Ask for the call that the model meant, or for a confirmation that its answer is complete."""
    done = f"write {_DONE}"
    if offer.respond is not None:
        done = f"call {offer.respond.name} with an empty message"
        done = f"give it again, with {offer.final_form}" if offer.final_form else done
    names = _names(offer, offer.tools)
    call = f"If you meant to call a tool, call it now ({names}). " if offer.tools else ""
    return f"{call}If your answer was complete, {done}."


def quote_reply(reply: str) -> tuple[Message, ...]:
    return (assistant_message(reply),) if reply.strip() else ()


def _append(reply: str, text: str) -> tuple[Message, ...]:
    return (*quote_reply(reply), user_message(text))


def _demand_call(offer: OfferedTools) -> str:
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
