from proxy.doctor.finding import Status
from proxy.doctor.machine import descriptors, judge_descriptors, reachability
from proxy.settings import Settings


def test_too_few_open_files_for_a_full_queue_are_a_warning_with_the_number() -> None:
    found = judge_descriptors(256, 576)
    assert found.status is Status.WARN
    assert "ulimit -n 576" in found.remedy


def test_enough_open_files_or_no_limit_are_fine() -> None:
    assert judge_descriptors(576, 576).status is Status.OK
    assert "any number" in judge_descriptors(-1, 576).said


def test_the_limit_is_that_of_this_process() -> None:
    one = Settings.model_validate({"server": {"max_waiting": 1}})
    many = Settings.model_validate({"server": {"max_waiting": 10**9}})
    assert descriptors(one).status is Status.OK
    assert descriptors(many).status is Status.WARN


def test_who_can_reach_temper_is_told() -> None:
    assert "this machine alone" in reachability(Settings()).said
    settings = {"server": {"host": "0.0.0.0", "api_key": "secret"}}
    assert "wants its key" in reachability(Settings.model_validate(settings)).said
