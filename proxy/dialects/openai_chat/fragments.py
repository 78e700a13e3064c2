"""The chunk that nearly every chunk is: a piece of text, of a thought or of a call's arguments.

Half of what reading any chunk costs. What is in any way different is left to the decoder, which
knows every form; nothing is judged here.
"""

from typing import NamedTuple, TypeAlias

import msgspec

from proxy.conversation.replies import ReasoningDelta, TextDelta


class ArgumentsFragment(NamedTuple):
    """More of the arguments of the call that has this number for the backend."""

    number: int
    text: str


Fragment: TypeAlias = TextDelta | ReasoningDelta | ArgumentsFragment


class _Function(msgspec.Struct):
    arguments: str
    name: None = None


class _Call(msgspec.Struct):
    index: int
    function: _Function
    id: None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta
    index: int = 0
    finish_reason: None = None
    logprobs: None = None


class _Chunk(msgspec.Struct):
    choices: tuple[_Choice]
    usage: None = None
    timings: None = None
    prompt_progress: None = None
    error: None = None


_read = msgspec.json.Decoder(_Chunk).decode


def fragment_in(data: str) -> Fragment | None:
    """Read a chunk that holds one fragment and nothing else; None for any other."""
    try:
        (choice,) = _read(data).choices
    except ValueError:
        return None
    if choice.index:
        return None
    delta = choice.delta
    if delta.tool_calls is None:
        return _said(delta)
    if delta.content or delta.reasoning_content or len(delta.tool_calls) != 1:
        return None
    (call,) = delta.tool_calls
    return ArgumentsFragment(call.index, call.function.arguments)


def _said(delta: _Delta) -> Fragment | None:
    if not delta.reasoning_content:
        return TextDelta(delta.content) if delta.content else None
    return None if delta.content else ReasoningDelta(delta.reasoning_content)
