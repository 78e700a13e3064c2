from dataclasses import replace

import pytest

from proxy.hardware.fit import Device, Memory
from proxy.hardware.shape import Layer, ModelShape
from proxy.hardware.summary import Prospect, amount, document, summary

GIB = 1 << 30
SHAPE = ModelShape(5 * GIB, (Layer(8, 128, 128),) * 36, 40_960)
GPU = Device("some GPU", 24 * GIB, 20 * GIB)
HOST = Memory(64 * GIB, 48 * GIB)
PROSPECT = Prospect(SHAPE, replace(HOST, devices=(GPU,)), 2)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0.0 KiB"), (1536, "1.5 KiB"), (1 << 20, "1.0 MiB"), (5 * GIB // 2, "2.5 GiB")],
)
def test_amount_returns_bytes_in_kib_mib_or_gib(size: int, text: str) -> None:
    assert amount(size) == text


def test_a_fitting_model_is_summarized_in_three_lines() -> None:
    assert summary(PROSPECT) == {
        "memory": "weights 5.0 GiB; 1,024 tokens of a slot 144.0 MiB (f16), 76.5 MiB (q8_0)",
        "window": "40,960 tokens fit for each of 2 slots (40,960 with a q8_0 cache); "
        "trained for 40,960",
        "hardware": "some GPU: 20.0 GiB of 24.0 GiB free; host: 48.0 GiB of 64.0 GiB free",
    }


def test_without_a_gpu_the_summary_says_that_no_gpu_was_found() -> None:
    lines = summary(replace(PROSPECT, memory=HOST, slots=1))
    assert lines["hardware"] == "no GPU was found; host: 48.0 GiB of 64.0 GiB free"
    assert lines["window"].startswith("40,960 tokens fit (")


def test_the_summary_names_a_gpu_that_llama_server_does_not_use() -> None:
    unused = replace(PROSPECT, memory=PROSPECT.memory.without_devices())
    assert summary(unused)["hardware"] == (
        "some GPU is not used by this llama-server; host: 48.0 GiB of 64.0 GiB free"
    )
    assert document(unused)["unused_devices"] == ["some GPU"]


def test_a_model_that_does_not_fit_is_reported_with_needed_and_free_memory() -> None:
    lines = summary(replace(PROSPECT, memory=Memory(4 * GIB, 3 * GIB)))
    assert lines["window"] == (
        "none fits: the model needs 5.0 GiB, but only 2.7 GiB is available; trained for 40,960"
    )


def test_the_summary_says_how_much_of_the_model_is_in_host_memory() -> None:
    memory = replace(HOST, devices=(replace(GPU, free=4 * GIB, is_unified=False),))
    assert "GiB of it in the host's memory" in summary(replace(PROSPECT, memory=memory))["window"]


def test_the_summary_says_that_gpu_memory_is_shared_with_the_host() -> None:
    memory = replace(HOST, devices=(replace(GPU, is_unified=True),))
    assert "free, shared with the host;" in summary(replace(PROSPECT, memory=memory))["hardware"]


def test_a_cache_type_that_does_not_suit_the_head_size_is_omitted() -> None:
    uneven = replace(PROSPECT, shape=replace(SHAPE, layers=(Layer(8, 80, 80),)))
    assert "q8_0" not in summary(uneven)["memory"] + summary(uneven)["window"]
    caches = document(uneven)["caches"]
    assert isinstance(caches, dict)
    assert list(caches) == ["f16"]


def test_document_has_all_numbers_in_bytes_and_tokens() -> None:
    document_ = document(PROSPECT)
    assert (document_["weights_bytes"], document_["trained_context"], document_["slots"]) == (
        5 * GIB,
        40_960,
        2,
    )
    assert document_["host"] == {"total_bytes": 64 * GIB, "free_bytes": 48 * GIB}
    assert document_["devices"] == [
        {"name": "some GPU", "total_bytes": 24 * GIB, "free_bytes": 20 * GIB, "unified": False}
    ]
    caches = document_["caches"]
    assert isinstance(caches, dict)
    default, small = caches["f16"], caches["q8_0"]
    assert isinstance(default, dict)
    assert isinstance(small, dict)
    assert (default["largest_window"], default["on_host_bytes"]) == (40_960, 0)
    assert (default["usable_bytes"], default["bytes_per_token"]) == (19 * GIB, 147_456)
    assert small["bytes_per_token"] == 36 * 2 * 1088
