from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation.replies import ReasoningDelta, TextDelta
from proxy.guardrails.labels import FinalAnswer, InventedResult, LabeledPart, LabelSplitter
from tests.fakes.arrivals import chunkings, is_linear

ACTION = 'Action: look\nAction Input: {"at": "x"}'


def split(pieces: list[str]) -> list[LabeledPart]:
    """Split a reply that arrives in chunks; adjacent parts of the same kind are joined."""
    splitter = LabelSplitter()
    parts = [part for piece in pieces for part in splitter.feed(piece)] + splitter.finish()
    joined: list[LabeledPart] = []
    for result in parts:
        last = joined[-1] if joined else None
        match last, result:
            case (ReasoningDelta(), ReasoningDelta()):
                joined[-1] = ReasoningDelta(last.text + result.text)
            case (TextDelta(), TextDelta()):
                joined[-1] = TextDelta(last.text + result.text)
            case (FinalAnswer(), FinalAnswer()):
                joined[-1] = FinalAnswer(last.text + result.text)
            case _:
                joined.append(result)
    return joined


def thought(text: str) -> LabeledPart:
    return ReasoningDelta(text)


def text_part(text: str) -> LabeledPart:
    return TextDelta(text)


def answer(text: str) -> LabeledPart:
    return FinalAnswer(text)


INVENTED: LabeledPart = InventedResult()


@pytest.mark.parametrize(
    ("reply", "parts"),
    [
        ("It is noon.\n", [text_part("It is noon.\n")]),
        ("  \n It is noon.", [text_part("  \n It is noon.")]),
        ("Thought: So.\nFinal Answer: Noon.\n", [thought("So."), answer("Noon.")]),
        (" Thought:\n So\n it is.\n\nFinal Answer:\nA", [thought("So\n it is."), answer("A")]),
        ("Final Answer:\nA\n\n B", [answer("A\n\n B")]),
        (f"Thought: So.\n{ACTION}", [thought("So."), text_part(ACTION)]),
        (f"Sure.\n\n{ACTION}\n", [text_part(f"Sure.\n{ACTION}\n")]),
        (f"{ACTION}\nObservation: 3\nFinal Answer: 3", [text_part(f"{ACTION}\n"), INVENTED]),
        (f"{ACTION}\nFinal Answer: 3", [text_part(f"{ACTION}\n"), INVENTED]),
        (
            f"{ACTION}\nThought: More.\n{ACTION}",
            [text_part(f"{ACTION}\n"), thought("More."), text_part(ACTION)],
        ),
        ("Thought: A\nThought: B", [thought("A\nB")]),
        ("Action: None\nAction Input: None\nFinal Answer: 4", [answer("4")]),
        ("Action: none.", []),
        ("Action: look", [text_part("Action: look")]),
        ("Action: look\nAction: wait\n", [text_part("Action: look\nAction: wait\n")]),
        ("Action: look\nObservation: 3", [text_part("Action: look\n"), INVENTED]),
        ("Observation: it rains", [text_part("Observation: it rains")]),
        ("Thought: x\nObservation: y", [thought("x\nObservation: y")]),
        ("Final Answer: a\nAction: b\nThought: c", [answer("a\nAction: b\nThought: c")]),
        ("I think. Action: look", [text_part("I think. Action: look")]),
        ("          Action: look", [text_part("          Action: look")]),
        ("Thou", [text_part("Thou")]),
        ("Thought:", []),
        ("", []),
    ],
)
def test_a_reply_is_split_at_its_labels_at_any_chunking(
    reply: str, parts: list[LabeledPart]
) -> None:
    assert split([reply]) == parts
    assert all(split(pieces) == parts for pieces in chunkings(reply))


LINES = st.lists(
    st.sampled_from(
        (
            *("Thought:", "Action:", "Action Input:", "Final Answer:", "Observation:"),
            *(" ", "\n", "\t", "none", "look", "{}", "x y", "Act", "\n\n"),
        )
    ),
    max_size=12,
).map("".join)


@given(reply=LINES, cuts=st.lists(st.integers(0, 60), max_size=6))
def test_any_reply_is_split_alike_at_any_chunking(reply: str, cuts: list[int]) -> None:
    boundaries = sorted({0, len(reply), *(min(cut, len(reply)) for cut in cuts)})
    pieces = [reply[start:end] for start, end in pairwise(boundaries)]
    assert split(pieces) == split([reply])


@given(reply=st.text(st.sampled_from("ab: \n"), max_size=40))
def test_a_reply_without_labels_is_unchanged(reply: str) -> None:
    assert split([*reply]) == ([text_part(reply)] if reply else [])


@pytest.mark.parametrize("line", ["Thought: x\n", "x\n", "Action: x\n", " ", "\n"])
def test_splitting_at_labels_takes_linear_time(line: str) -> None:
    assert is_linear(lambda text: split([text]), lambda size: line * size, 2000)
    assert is_linear(lambda text: split([*text]), lambda size: line * size, 500)
