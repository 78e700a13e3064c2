import pytest

from proxy.backends.member_health import Member, in_order
from tests.fakes.backend import ScriptedBackend

KEY = "00000000000000aa"


def members(count: int = 3) -> list[Member]:
    """Make members in the order in which the conversation would like them."""
    made = [Member(ScriptedBackend(name=f"http://{number}")) for number in range(count)]
    return in_order(made, KEY, 0)


def numbers(found: list[Member], all_members: list[Member]) -> list[int]:
    return [all_members.index(member) for member in found]


def test_the_hash_decides_where_all_is_well() -> None:
    those = members()
    assert numbers(in_order(those[::-1], KEY, 0), those) == [0, 1, 2]


def test_a_member_that_is_full_hands_over_to_the_next() -> None:
    those = members()
    those[0].slots = those[1].slots = 2
    those[0].running = 2
    those[1].running = 1
    assert numbers(in_order(those, KEY, 0), those) == [1, 2, 0]


def test_where_all_are_full_the_hash_decides_again() -> None:
    those = members()
    for member in those:
        member.slots = member.running = 1
    assert numbers(in_order(those, KEY, 0), those) == [0, 1, 2]


@pytest.mark.parametrize(("now", "order"), [(1.0, [1, 2, 0]), (2.0, [0, 1, 2])])
def test_a_member_that_is_spared_comes_last_until_it_may_be_tried(
    now: float, order: list[int]
) -> None:
    those = members()
    for _ in range(2):
        those[0].breaker.failed(0)
    assert numbers(in_order(those, KEY, now), those) == order


def test_a_turn_keeps_its_member_even_if_that_is_full() -> None:
    those = members()
    those[2].slots = those[2].running = 1
    assert numbers(in_order(those, KEY, 0, those[2]), those) == [2, 0, 1]
    for _ in range(2):
        those[2].breaker.failed(0)
    assert numbers(in_order(those, KEY, 1, those[2]), those) == [0, 1, 2]
