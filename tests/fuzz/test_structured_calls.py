"""Valid structured calls arrive as the model wrote them, however split, in every API dialect."""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from tests.examples import examples, mostly_deep, share
from tests.fuzz import targets
from tests.fuzz.structured_calls import PATHS, Call, Case, ask_for, cases, is_healthy, judge, sent

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "a b": {"type": "number"},
        "n": {"type": "integer"},
        "s": {"type": "string"},
        "any": {},
    },
    "required": ["s"],
}
# each value in a spelling that no JSON serializer would write
ODD = (
    ' {"a b" :1e5,\n"n": 18446744073709551616, '
    '"\\u0073":"\\/\\u00e9 \\ud83d\\ude00 \U0001f600 \u20ac", "any":[-0, 2.50, {} , [[ ]]]}\n'
)
EXAMPLES = 100


@pytest.fixture(autouse=True, scope="module")
def loop() -> Iterator[None]:
    yield
    targets.close()


def case(
    path: int, *network: int, stream: bool = True, whole: bool = False, arguments: str = ODD
) -> Case:
    call = Call("edit", msgspec.Raw(json.dump(SCHEMA)), arguments, (3, 9, 40, 77))
    return Case(path, stream, whole=whole, ascii=False, text="", calls=(call,), network=network)


@settings(max_examples=examples(EXAMPLES), deadline=None)
@given(cases())
def test_a_random_valid_call_is_returned_unchanged(data: bytes) -> None:
    judge(data)


@pytest.mark.parametrize("path", mostly_deep(range(len(PATHS))), ids=PATHS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("whole", [False, True])
def test_a_call_split_within_a_multibyte_character_is_returned_unchanged(
    *, path: int, stream: bool, whole: bool
) -> None:
    body = sent(case(path, whole=whole))
    assert is_healthy(case(path))
    inside = [position for position in range(len(body)) if 0x80 <= body[position] < 0xC0]
    assert len(inside) >= 5
    for position in sorted({*share(range(len(body) + 1)), *inside}):
        judge(msgspec.json.encode(case(path, position, stream=stream, whole=whole)))
    judge(msgspec.json.encode(case(path, *inside, stream=stream, whole=whole)))


def test_more_than_half_of_the_generated_calls_are_valid() -> None:
    healthy: list[bool] = []

    @settings(max_examples=examples(EXAMPLES), deadline=None)
    @given(cases())
    def note(data: bytes) -> None:
        healthy.append(is_healthy(msgspec.json.decode(data, type=Case)))

    note()
    assert sum(healthy) > len(healthy) / 2


@pytest.mark.parametrize(
    "arguments",
    [
        '{"s": "a", "s": "b"}',
        '{"s": "a", "\\u0073": "a"}',
        '{"s": 1}',
        '{"n": 1}',
        '{"s": "\\ud83d"}',
        '["s"]',
        '{"s": "a"',
    ],
)
def test_invalid_calls_are_not_counted_as_healthy(arguments: str) -> None:
    assert not is_healthy(case(0, arguments=arguments))


@pytest.mark.parametrize("path", range(len(PATHS)), ids=PATHS)
def test_a_call_with_a_duplicate_member_name_is_retried(path: int) -> None:
    client, questions = ask_for(case(path, arguments='{"s": "a", "s": "b"}', stream=False))
    assert len(questions) > 1
    assert b'"b"' not in client.answer
