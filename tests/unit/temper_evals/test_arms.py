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


async def test_the_arms_without_temper_open_the_model_itself() -> None:
    for name in ("direct", "direct-urged", "direct-required", "ceiling"):
        async with usual_arms()[name].opening(BACKEND) as target:
            assert target is BACKEND


def test_the_names_of_arms_say_which_arm_urges_or_requires_calls_or_is_the_ceiling() -> None:
    arms = usual_arms()
    assert arms["direct-urged"].habits.urges
    assert arms["direct-required"].habits.requires
    assert [name for name, arm in arms.items() if arm.is_ceiling] == ["ceiling"]


def test_each_guardrail_has_an_arm_without_it_and_an_arm_with_only_it() -> None:
    assert {*PARTS} == {*get_args(Part)}
    for part in PARTS:
        assert {f"temper-without-{part}", f"temper-only-{part}"} <= usual_arms().keys()


def test_choose_arms_returns_each_named_arm_once_and_refuses_an_unknown_name() -> None:
    custom_arm = Arm("own", usual_arms()[DIRECT].opening)
    chosen = choose_arms(["direct", "own", "direct"], {"own": custom_arm})
    assert [arm.name for arm in chosen] == ["direct", "own"]
    assert len(choose_arms((*QUICK_ARMS, *FULL_ARMS))) == len(FULL_ARMS)
    with pytest.raises(InvalidConfiguration, match="no arm 'tamper'"):
        choose_arms(["tamper"])


def test_an_unknown_guardrail_in_the_name_of_an_arm_is_refused() -> None:
    assert names_without_parts(["rescue"]) == ["temper-without-rescue"]
    with pytest.raises(InvalidConfiguration, match="no part 'resque'"):
        names_without_parts(["resque"])
