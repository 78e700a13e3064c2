"""Chunkings of a text, parsers that read them, and checks of the growth of work."""

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from msgspec.structs import replace

from proxy.guardrails.rescue.findings import ArgumentsText, Finding, FoundCalls, Gap, Prose
from proxy.guardrails.rescue.provenance import Words
from proxy.guardrails.rescue.scanner import Scanner
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reason, Syntax
from proxy.guardrails.rescue.values.cursor import Cursor, Literals
from proxy.guardrails.rescue.values.scalars import Unreadable
from tests.examples import share

T = TypeVar("T")


# A text is cut in two at every position that is at most this far from its start or its end.
EVERY_CUT = 120


def chunkings(text: str) -> Iterator[list[str]]:
    """Split a text in different ways: in one piece, by character, in two, in equal pieces.

    It is split in two at a tenth of all positions (at every position with HYPOTHESIS_PROFILE=deep).
    In the middle of a long text, which repeats itself, most positions are left out; otherwise the
    work would grow with the square of the length.
    """
    yield [text]
    yield list(text)
    for cut in share(range(1, len(text))):
        if min(cut, len(text) - cut) <= EVERY_CUT or cut % 61 == 0:
            yield [text[:cut], text[cut:]]
    for size in (2, 3, 5, 7, 11, 23):
        yield [text[start : start + size] for start in range(0, len(text), size)]


def run(cursor: Cursor, reading: Generator[None, None, T], pieces: Iterable[str]) -> tuple[T, str]:
    """Feed a parser until it returns; return its result and the unread text."""
    arriving = iter(pieces)
    try:
        next(reading)
        for piece in arriving:
            cursor.feed(piece)
            next(reading)
        cursor.finish()
        next(reading)
    except StopIteration as end:
        result: T = end.value
    else:
        raise AssertionError("the parser waits for more text after the end of the text")
    cursor.feed("".join(arriving))
    cursor.begin()
    cursor.consume_until(Literals(()))
    return result, cursor.source()


def read(start: Callable[[Cursor], Generator[None, None, T]], text: str) -> tuple[T, str]:
    """Run a parser over a text in all splits; return its result and the unread text."""
    results: list[tuple[T, str]] = []
    for pieces in chunkings(text):
        cursor = Cursor()
        results.append(run(cursor, start(cursor), pieces))
    assert all(result == results[0] for result in results)
    return results[0]


def outcome(reading: Generator[None, None, T]) -> Generator[None, None, T | NoCall | Unreadable]:
    """Run a parser that may reject the text; return the rejection as its result."""
    try:
        return (yield from reading)
    except (NoCall, Unreadable) as refusal:
        return refusal


def attempt(
    start: Callable[[Cursor], Generator[None, None, T]], text: str
) -> tuple[T | NoCall | Unreadable, str]:
    """Run a parser that may reject the text, over all splits."""
    return read(lambda cursor: outcome(start(cursor)), text)


def read_syntax(syntax: Syntax, text: str) -> tuple[Calls | NoCall, str]:
    """Parse a text that begins with the opening mark of `syntax`, over all splits."""
    opening = next(opening for opening in syntax.openings if text.startswith(opening))

    def start(cursor: Cursor) -> Generator[None, None, Calls]:
        cursor.begin()
        yield from cursor.literal(opening)
        return (yield from syntax.read(cursor, opening))

    match, rest = attempt(start, text)
    return (NoCall(Reason.BROKEN) if isinstance(match, Unreadable) else match), rest


def scan(
    pieces: Iterable[str],
    syntaxes: Sequence[Syntax],
    offered: Collection[str] = (),
    *,
    cut_off: bool = False,
) -> list[Finding]:
    """Scan text in pieces and merge adjacent texts, which depend on the splits."""
    scanner = Scanner(syntaxes, offered)
    findings: list[Finding] = []
    for piece in pieces:
        findings += scanner.feed(piece)
    return joined(findings + scanner.finish(cut_off=cut_off))


def joined(findings: Iterable[Finding]) -> list[Finding]:
    """Merge adjacent texts. An ambiguous call counts as text; other calls lose their context."""
    result: list[Finding] = []
    counted = (settled(finding) for finding in findings if not isinstance(finding, Gap))
    for kind, neighbours in groupby(counted, type):
        group = list(neighbours)
        texts = [item.text for item in group if isinstance(item, Prose | ArgumentsText)]
        if kind is Prose:
            result.append(Prose("".join(texts)))
        elif kind is ArgumentsText:
            result.append(ArgumentsText("".join(texts)))
        else:
            result += group
    return result


def settled(finding: Finding) -> Finding:
    """Return a finding as it is used without a retry: an ambiguous call becomes prose."""
    if not isinstance(finding, FoundCalls):
        return finding
    if finding.is_doubtful:
        return Prose(finding.source)
    return replace(finding, before=Words.NONE, within=(), lead="")


def calls_found(findings: Iterable[Finding]) -> list[FoundCalls]:
    """Return the calls that are accepted without a retry."""
    return [finding for finding in map(settled, findings) if isinstance(finding, FoundCalls)]


def is_linear(work: Callable[[str], object], text: Callable[[int], str], size: int) -> bool:
    """Return whether twice the text takes about twice the work: t(2n)/t(n) < 2.5.

    A noisy machine only makes measurements too large, so one good measurement of twelve is enough.
    """
    return any(_time(work, text(2 * size)) / _time(work, text(size)) < 2.5 for _ in range(12))


def is_bounded(work: Callable[[str], object], text: Callable[[int], str], size: int) -> bool:
    """Return whether a hundred times the text takes about the same work: t(100n)/t(n) < 10."""
    return any(_time(work, text(100 * size)) / _time(work, text(size)) < 10 for _ in range(5))


def _time(work: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    work(text)
    return max(time.process_time() - start, 1e-3)  # times below this are noise
