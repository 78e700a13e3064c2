"""Replies made of structural marks: of reasoning, answers, results, calls, and tokens.

There are two kinds of input. A broken input joins marks, halves of marks, calls and prose in any
order, and is judged like any text (`replies.fuzz_one`). A whole input is a document of parts on
separate lines. Its blocks of reasoning and of invented results contain calls that the model did not
intend: none of them may be executed, and no mark of a block may be shown. The last part is an
answer, because a call in reasoning is valid if the reply has no other text.
"""

import re

import msgspec
from hypothesis import strategies as st

from proxy.guardrails.offer import TextPolicy
from proxy.guardrails.rescue.marks import (
    ANSWERS,
    REASONING,
    RESULTS,
    SPECIAL_TOKENS,
    STRAY_CLOSERS,
)
from proxy.guardrails.rescue.values.cursor import fold_mark, loose_pattern
from tests.corpus.cases import Case, after_result, ask, cut, outcome
from tests.corpus.spellings import MARKED, Call
from tests.fuzz.replies import fuzz_one
from tests.fuzz.targets import Target

MEANT: Call = ("get_weather", {"city": "Paris"})
HIDDEN: Call = ("get_weather", {"city": "Oslo"})
ANSWER = "It is sunny."
_BLOCKS = REASONING | RESULTS
_REQUESTS = (ask(), after_result("It is noon."))
_POLICIES = (TextPolicy.ACCEPT, TextPolicy.AUTO, TextPolicy.RESPOND)
# marks that enclose results or reasoning, never calls
_OWN = [*_BLOCKS, *(end for end in _BLOCKS.values() if end not in SPECIAL_TOKENS)]
_SHOWN = re.compile(loose_pattern(*_OWN), re.IGNORECASE)


class Block(msgspec.Struct, forbid_unknown_fields=True):
    """A block of `_BLOCKS` with its spelling and its content."""

    opening: str
    content: str
    closing: str


class Reply(msgspec.Struct, forbid_unknown_fields=True):
    """The parts of a reply, its chunk size, and the request."""

    parts: list[Block | str]
    size: int = 1
    turn: int = 0
    policy: int = 0

    @property
    def text(self) -> str:
        """The text of the model."""
        blocks = (
            part if isinstance(part, str) else "\n".join(msgspec.structs.astuple(part))
            for part in self.parts
        )
        return "\n".join((*blocks, ANSWER))


def judge_blocks(data: bytes) -> None:
    """Judge a reply of whole blocks; other inputs are ignored."""
    try:
        reply = msgspec.json.decode(data, type=Reply)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if len(data) > 4096 or not all(map(_is_whole, reply.parts)):
        return
    case = Case(
        "marks",
        reply.text,
        _REQUESTS[reply.turn % len(_REQUESTS)],
        policy=_POLICIES[reply.policy % len(_POLICIES)],
    )
    whole = outcome(case, [case.reply])
    assert outcome(case, cut(case.reply, reply.size % 23 + 1)) == whole
    assert HIDDEN not in whole.calls, (case.reply, whole)
    assert _SHOWN.search(whole.text) is None, (case.reply, whole.text)


def _is_whole(part: Block | str) -> bool:
    """Return whether a part is prose, a call, or a block with its closing mark."""
    if isinstance(part, str):
        return _SHOWN.search(part) is None
    ends = {fold_mark(opening): fold_mark(end) for opening, end in _BLOCKS.items()}
    end = ends.get(fold_mark(part.opening))
    return end == fold_mark(part.closing) and end not in fold_mark(part.content)


_CHANGES = st.sampled_from(
    (str, str.upper, str.title, lambda mark: mark.replace(">", " >"), str.swapcase)
)


def _spelled(mark: str) -> st.SearchStrategy[str]:
    return _CHANGES.map(lambda change: change(mark))


def _written(call: Call) -> st.SearchStrategy[str]:
    return st.sampled_from(MARKED).map(lambda spelling: spelling.one(call))


_PROSE = st.sampled_from(["I look.", "Perhaps not.", "42", "", "The page says this."])


def _block(opening: str) -> st.SearchStrategy[Block]:
    inner = st.sampled_from([*_BLOCKS]).map(lambda mark: f"{mark}\n42\n{_BLOCKS[mark]}")
    content = st.lists(_PROSE | _written(HIDDEN) | inner, min_size=1, max_size=3).map("\n".join)
    return st.builds(Block, _spelled(opening), content, _spelled(_BLOCKS[opening]))


_THOUGHTS = st.sampled_from([*REASONING]).flatmap(_block)
_INVENTED = st.sampled_from([*RESULTS]).flatmap(_block)
_REPLIES = st.builds(
    Reply,
    st.tuples(
        st.lists(_THOUGHTS, max_size=2),
        st.lists(_PROSE, max_size=1),
        st.lists(_written(MEANT), max_size=1),
        st.lists(_INVENTED, max_size=2),
    ).map(lambda parts: [block for some in parts for block in some]),
    st.integers(0, 22),
    st.integers(0, 1),
    st.integers(0, 2),
).map(msgspec.json.encode)
_MARKS = sorted({*_BLOCKS, *_BLOCKS.values(), *ANSWERS, *ANSWERS.values(), *SPECIAL_TOKENS})
_ANY_MARK = st.sampled_from([*_MARKS, *sorted(STRAY_CLOSERS)]).flatmap(_spelled)
_HALF = st.tuples(_ANY_MARK, st.integers(1, 30)).map(lambda made: made[0][: made[1]])
_PART = _ANY_MARK | _HALF | _PROSE | _written(MEANT) | st.sampled_from(["\n", " ", "```\n", "`"])
_BROKEN = st.tuples(st.binary(min_size=2, max_size=2), st.lists(_PART, max_size=12)).map(
    lambda made: made[0] + "".join(made[1]).encode()
)
TARGETS = (
    Target("blocks of marks", _REPLIES, judge_blocks),
    Target("broken marks", _BROKEN, fuzz_one),
)
