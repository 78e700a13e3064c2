from typing import get_args

import pytest

from proxy.errors import InvalidConfiguration
from proxy.guardrails.offer import Part
from temper_evals.arms import (
    DIRECT,
    FULL_ARMS,
    PARTS,
    QUICK_ARMS,
    Arm,
    choose_arms,
    names_without_parts,
    usual_arms,
)
from temper_evals.loop import ModelTarget

BACKEND = ModelTarget("http://model")


async def test_arms_without_temper_send_their_requests_to_the_model() -> None:
    for name in ("direct", "direct-urged", "direct-required", "ceiling"):
        async with usual_arms()[name].opening(BACKEND) as target:
            assert target is BACKEND


def test_arms_have_the_habits_of_their_names() -> None:
    arms = usual_arms()
    assert arms["direct-urged"].habits.urges
    assert arms["direct-required"].habits.requires
    assert [name for name, arm in arms.items() if arm.is_ceiling] == ["ceiling"]


def test_each_guardrail_has_an_arm_without_it_and_an_arm_with_it_alone() -> None:
    assert {*PARTS} == {*get_args(Part)}
    for part in PARTS:
        assert {f"temper-without-{part}", f"temper-only-{part}"} <= usual_arms().keys()


def test_arms_are_chosen_by_name_without_duplicates() -> None:
    custom_arm = Arm("own", usual_arms()[DIRECT].opening)
    chosen = choose_arms(["direct", "own", "direct"], {"own": custom_arm})
    assert [arm.name for arm in chosen] == ["direct", "own"]
    assert len(choose_arms((*QUICK_ARMS, *FULL_ARMS))) == len(FULL_ARMS)
    with pytest.raises(InvalidConfiguration, match="no arm 'tamper'"):
        choose_arms(["tamper"])


def test_an_unknown_part_is_refused() -> None:
    assert names_without_parts(["rescue"]) == ["temper-without-rescue"]
    with pytest.raises(InvalidConfiguration, match="no part 'resque'"):
        names_without_parts(["resque"])
