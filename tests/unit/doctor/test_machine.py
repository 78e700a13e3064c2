from proxy.doctor.finding import Status
from proxy.doctor.machine import descriptors, judge_descriptors, judge_memory, memory, reachability
from proxy.hardware.fit import Device, Memory
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


def test_the_memory_of_this_machine_and_its_devices_is_told() -> None:
    assert "main memory" in memory(Settings()).said
    device = Device("GPU 0", 24 << 30, 1 << 20)
    found = judge_memory(Memory(64 << 30, 32 << 30, (device,)))
    assert found.status is Status.OK
    assert (
        found.said
        == "32.0 GiB of 64.0 GiB of main memory and 1.0 MiB of 24.0 GiB of GPU 0 are free"
    )


def test_next_to_no_memory_is_a_warning() -> None:
    found = judge_memory(Memory(8 << 30, 1 << 20))
    assert found.status is Status.WARN
    assert found.said == "1.0 MiB of 8.0 GiB of main memory is free"


def test_who_can_reach_temper_is_told() -> None:
    assert "this machine alone" in reachability(Settings()).said
    settings = {"server": {"host": "0.0.0.0", "api_key": "secret"}}
    assert "wants its key" in reachability(Settings.model_validate(settings)).said
