"""Checks that every reply must pass when the rescue is fuzzed, and the replies to start from.

`fuzz_one` judges a reply. Its input is bytes, because fuzzers generate bytes. It does not depend on
the fuzzer.
"""

import random
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import FrameType

from jsonschema_rs import Draft202012Validator

from proxy.conversation.json import JsonValue
from proxy.conversation.replies import ReplyEvent, ReplyFinished, TextDelta, ToolCalled
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.guardrails.rescue.findings import (
    DroppedText,
    EarlierReasoning,
    Finding,
    FoundCalls,
    Prose,
)
from proxy.guardrails.rescue.marks import RESULTS, SPECIAL_TOKENS, STRAY_CLOSERS
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.scanner import find_calls
from proxy.guardrails.rescue.syntaxes.tool_names import syntaxes_for
from proxy.inference.plan import Policy
from tests.corpus.cases import Case, ask, cut, outcome
from tests.corpus.genuine import genuine
from tests.corpus.quoted import quoted
from tests.fakes.arrivals import joined, scan
from tests.fakes.playbook import Playbook

REQUEST = ask()
NAMES = tuple(tool.name for tool in REQUEST.tools)
NAMED = syntaxes_for(REQUEST.tools)
JUDGES = {tool.name: Draft202012Validator(tool.parameters) for tool in REQUEST.tools}

POLICIES = tuple(TextPolicy)
LONGEST = 4_096  # characters
MOST_CALLS = 40  # permitted Python function calls for each character of a reply
MOST_CALLS_AT_ALL = 500  # permitted in addition, whatever the length of the reply

_WORD = re.compile(r"\w+")
_LEFT_OUT = re.compile("|".join([r"\s", *map(re.escape, SPECIAL_TOKENS | STRAY_CLOSERS)]))
_HALVES = [re.escape(closer[:end]) for closer in STRAY_CLOSERS for end in range(2, len(closer))]
# After a call, the scanner may drop a control token with any name, or the end of a code fence.
_UNKNOWN_TOKEN = re.compile(r"(?:<[|\uff5c][^\s|\uff5c<>]+[|\uff5c]>|```)$")
_HALF_CLOSER = re.compile(f"(?:{'|'.join(_HALVES)})$")


def fuzz_one(data: bytes) -> None:
    """Judge a reply.

    The first byte selects the text policy and if the reply is cut off, the second byte selects the
    size of the chunks, and the remaining bytes are the text.
    """
    how, size = data[:2].ljust(2, b"\0")
    text = data[2:].decode("utf-8", "replace")[:LONGEST]
    pieces = cut(text, size % 23 + 1)
    cut_off = how % 2 == 1
    findings = _scanned_in_bounded_work(text, cut_off=cut_off)
    assert scan(pieces, SYNTAXES, NAMES, cut_off=cut_off) == findings
    _check_findings(text, findings)
    policy = POLICIES[how // 2 % len(POLICIES)]
    reason = "length" if cut_off else "stop"
    _check_outcome(Case("fuzzed", text, REQUEST, policy=policy, reason=reason), pieces)
    _check_observation(text, pieces)


def _scanned_in_bounded_work(text: str, *, cut_off: bool) -> list[Finding]:
    """Scan a text, and check the number of function calls."""
    calls = 0
    # the first scan compiles the regular expressions
    find_calls(text, SYNTAXES, NAMES, cut_off=cut_off)

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        findings = find_calls(text, SYNTAXES, NAMES, cut_off=cut_off)
    finally:
        sys.setprofile(before)
    assert calls <= MOST_CALLS * len(text) + MOST_CALLS_AT_ALL, calls
    return joined(findings)


def _check_findings(text: str, findings: Sequence[Finding]) -> None:
    """Check that no text is lost or invented."""
    calls = [finding for finding in findings if isinstance(finding, FoundCalls)]
    for found_call in calls:
        assert found_call.source in text
        for call in found_call.calls:
            assert _is_spelled((call.name, call.arguments), found_call.source), found_call
    pieces = [
        finding.text if isinstance(finding, Prose) else finding.source
        for finding in findings
        if isinstance(finding, Prose | FoundCalls)
    ]
    assert all(piece in text for piece in pieces)
    if any(isinstance(finding, DroppedText | EarlierReasoning) for finding in findings):
        return
    kept = "".join(pieces)
    assert _without_leftovers(kept) == _without_leftovers(text)
    assert calls or kept == text


def _without_leftovers(text: str) -> str:
    """Remove the remains of marks that may be dropped after a call."""
    shorter = _LEFT_OUT.sub("", text)
    while shorter != text:
        text, shorter = shorter, _HALF_CLOSER.sub("", _UNKNOWN_TOKEN.sub("", shorter))
    return text


def _is_spelled(value: JsonValue | tuple[JsonValue, ...], source: str) -> bool:
    """Return whether every word of a value occurs in a text, or the text may contain escapes."""
    if "\\" in source or "&" in source:
        return True
    return all(word in source for word in _words(value))


def _words(value: JsonValue | tuple[JsonValue, ...]) -> Iterator[str]:
    match value:
        case str():
            yield from _WORD.findall(value)
        case dict():
            for name, member in value.items():
                yield from _words(name)
                yield from _words(member)
        case list() | tuple():
            for item in value:
                yield from _words(item)
        case _:
            pass


def _check_outcome(case: Case, pieces: Sequence[str]) -> None:
    """Check that the outcome is valid, and the same however the text is cut."""
    text, whole = case.reply, outcome(case, [case.reply])
    assert outcome(case, pieces) == whole
    for name, arguments in whole.calls:
        assert JUDGES[name].is_valid(arguments)
        assert name.casefold() in text.casefold().replace("-", "_") or "\\" in text or "&" in text


def _check_observation(text: str, pieces: Iterable[str]) -> None:
    """Check that guardrails in observe mode forward everything unchanged."""
    policy = Policy(mode=Mode.OBSERVE, text_policy=TextPolicy.RESPOND)
    turn = Playbook.of(REQUEST, policy).ask().turn
    events: list[ReplyEvent] = [*map(TextDelta, pieces), ReplyFinished("stop")]
    shown = [seen_event for event in events for seen_event in turn.receive(event)]
    assert "".join(event.text for event in shown if isinstance(event, TextDelta)) == text
    assert not any(isinstance(event, ToolCalled) for event in shown)
    assert turn.next_request() is None


@cache
def seeds() -> tuple[str, ...]:
    """Return the replies of the corpus, calls and quotations."""
    corpora: list[Mapping[str, Sequence[Case]]] = [genuine(), quoted()]
    replies = (case.reply for corpus in corpora for cases in corpus.values() for case in cases)
    return tuple(dict.fromkeys(replies))


def dictionary() -> list[str]:
    """List the strings that have a meaning for the scanner."""
    openings = (opening for syntax in (*SYNTAXES, *NAMED) for opening in syntax.openings)
    tokens = (*SPECIAL_TOKENS, *STRAY_CLOSERS, *RESULTS)
    return sorted({*openings, *tokens, *NAMES, '"', "'", "{", "}", "[", "]", "```\n", "\\", "\n"})


def mutations(count: int, seed: int) -> Iterator[bytes]:
    """Yield broken replies, the same ones for the same `seed` of the random generator.

    Parts of a reply are removed or doubled; strings of `dictionary` and beginnings of other replies
    are inserted.
    """
    chance = random.Random(seed)
    words, replies = dictionary(), seeds()
    for _ in range(count):
        text = chance.choice(replies)
        for _ in range(chance.randint(1, 4)):
            start, end = sorted(chance.randint(0, len(text)) for _ in range(2))
            other = chance.choice(replies)
            part = chance.choice(
                ["", chance.choice(words), text[start:end] * 2, other[: chance.randint(0, 80)]]
            )
            text = text[:start] + part + text[end if chance.random() < 0.5 else start :]
        if chance.random() < 0.3:
            text = text.replace("get_weather", "respond").replace("city", "message")
        yield bytes([chance.randrange(256), chance.randrange(256)]) + text.encode()
