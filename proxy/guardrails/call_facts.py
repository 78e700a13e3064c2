"""Collects the positional facts about a call in the text, for the table of `rescue.provenance`.

`collect_facts` returns the facts as `CallFacts`; each other function determines one fact. The
module stores no state.

`FoundCalls` contains the facts that the scanner has determined (see `rescue.position`), such as the
kind of the words `before` a call. For example, the words `For example:` introduce an example. This
module adds the facts that depend on the text after the call, on the tools, or on earlier messages.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.conversation.json import JsonValue
from proxy.conversation.tools import Tool, ToolUse, WrittenCall
from proxy.guardrails import names
from proxy.guardrails.announcements.recognition import (
    announces,
    asks_user,
    is_question,
    shows_last,
)
from proxy.guardrails.offer import OfferedTools
from proxy.guardrails.rescue.copies import EarlierTexts
from proxy.guardrails.rescue.findings import FoundCalls
from proxy.guardrails.rescue.marks import contains_mark
from proxy.guardrails.rescue.markup import begins_with_mark
from proxy.guardrails.rescue.provenance import (
    CallFacts,
    Content,
    Context,
    Format,
    Origin,
    Words,
)
from proxy.guardrails.rescue.rows import FENCE
from proxy.guardrails.schemas.arguments import ValidArguments, check
from proxy.guardrails.unparsed_calls.recognition import is_asked_about
from proxy.guardrails.unparsed_calls.words import is_placeholder

_REPORT_WORDS = 4  # fewer words next to a call are no answer, as in "Here you are:"
# A Python fence is a call if it contains only valid calls (vllm-project/vllm#43104).
_PYTHON_FENCE = re.compile(r"\s*```(?:py(?:thon)?)?\s*\n(?!\s*[\[{<])")
_PYTHON = re.compile(r"\bpython", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NearbyText:
    """The prose around a call.

    `before` is all prose before the call. `after` is the prose between this call and the next call.
    `total` is all prose of the reply.
    """

    before: str = ""
    after: str = ""
    total: str = ""


def collect_facts(
    match: FoundCalls,
    calls: Sequence[WrittenCall],
    text: NearbyText,
    *,
    offer: OfferedTools,
    earlier: EarlierTexts,
) -> CallFacts:
    """Return the facts about a match; `calls` are its calls under the names of offered tools."""
    # If the client requires a call, a call that repeats the user's text is not a quotation.
    may_be_copied = offer.choice is ToolUse.AUTO and offer.quotable
    origin = earlier.find_origin(match.source, calls) if may_be_copied else Origin.MODEL
    after = _classify_words_after(text)
    is_enclosed = _is_in_element(match, text.after) or _is_in_fence(match, text.total)
    return CallFacts(
        origin,
        Context.LAYOUT if is_enclosed else find_context(match),
        _classify_words_before(match, calls, text.before, offer),
        after,
        _classify_content(match, text.total, after, offer),
        find_format(match, offer),
    )


def find_context(match: FoundCalls) -> Context:
    """Return SENTENCE if the scanner has found a marked call inside a sentence, otherwise NONE."""
    return Context.SENTENCE if match.is_doubtful and match.is_marked else Context.NONE


def find_format(match: FoundCalls, offer: OfferedTools) -> Format:
    return Format.OWN if match.syntax_name in offer.own_syntaxes else Format.FOREIGN


def find_shown_tool(call: WrittenCall, offer: OfferedTools) -> Tool | None:
    """Return the called tool. It may be any tool in the prompt, also the respond tool."""
    return names.find_tool(offer.aliases.get(call.name, call.name), offer.everything)


def asks_about_calls(calls: Sequence[WrittenCall], offer: OfferedTools) -> bool:
    """Return whether a user asked how to call one of these tools; the calls are then examples."""
    return any(is_asked_about(call.name, text) for call in calls for text in offer.user_texts)


def is_valid(call: WrittenCall, offer: OfferedTools) -> bool:
    tool = find_shown_tool(call, offer)
    return tool is not None and isinstance(check(tool, call.arguments), ValidArguments)


def _is_in_element(match: FoundCalls, text_after: str) -> bool:
    """Return whether the element that encloses a call is closed in the text after the call."""
    if match.follows_mark and begins_with_mark(text_after):
        return True
    text = f"{match.source}\n{text_after}".casefold() if match.within else ""
    return any(closer in text for closer in match.within)


def _is_in_fence(match: FoundCalls, total: str) -> bool:
    """Return whether a marked call is in a code fence after words that announce no call."""
    is_fenced = match.source.startswith(FENCE) and contains_mark(match.source)
    return is_fenced and match.before is Words.OTHER and not announces(total)


def _classify_words_before(
    match: FoundCalls, calls: Sequence[WrittenCall], text_before: str, offer: OfferedTools
) -> Words:
    """Classify the words before a call; a Python fence is an example if the user wants code."""
    words = match.before
    if words is Words.OTHER and asks_user(text_before):
        words = Words.ASKING  # "Shall I delete it? CALL": the user has to answer first
    if not _PYTHON_FENCE.match(match.source):
        return words
    is_requested = asks_about_calls(calls, offer) or any(map(_PYTHON.search, offer.user_texts))
    is_announced = words is Words.NONE or announces(text_before, offer.written_names)
    is_call = is_announced and not is_requested and all(is_valid(call, offer) for call in calls)
    return words if is_call else Words.SHOWING


def _classify_words_after(text: NearbyText) -> Words:
    if not text.after.strip():
        return Words.NONE
    if shows_last(text.after):
        return Words.SHOWING
    is_asking = is_question(text.total) or asks_user(text.after)
    return Words.ASKING if is_asking else Words.OTHER


def _classify_content(match: FoundCalls, total: str, after: Words, offer: OfferedTools) -> Content:
    """Classify the content of a call.

    A call that has only placeholders is classified as PLACEHOLDERS only if an answer that announces
    no call is next to it.

    Hermes-2-Pro appends the empty form of a tool to its question to the user:

        I would need the name of the league. {"name": "get_ranking", "arguments": {"league": ""}}
    """
    is_answer = len(total.split()) >= _REPORT_WORDS
    is_empty = is_answer and all(_is_filler(call, offer) for call in match.calls)
    if is_empty and (after is Words.ASKING or not announces(total, offer.written_names)):
        return Content.PLACEHOLDERS
    return Content.MARKED if match.is_marked else Content.PLAIN


def _is_filler(call: WrittenCall, offer: OfferedTools) -> bool:
    """Return whether every required string of the call is only a placeholder."""
    tool, arguments = find_shown_tool(call, offer), call.arguments
    schema = tool.parameters if tool is not None else None
    if not isinstance(schema, dict) or not isinstance(arguments, dict):
        return False
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return False
    values = {name: arguments.get(name) for name in map(str, required)}
    strings = {name: value for name, value in values.items() if isinstance(value, str)}
    return bool(strings) and all(
        _is_placeholder(value, properties.get(name)) for name, value in strings.items()
    )


def _is_placeholder(value: str, schema: JsonValue) -> bool:
    """Return whether a value is empty, a placeholder, or a copy of a text in its schema."""
    schema_texts = schema.values() if isinstance(schema, dict) else ()
    return not value.strip() or is_placeholder(value) or value in schema_texts
