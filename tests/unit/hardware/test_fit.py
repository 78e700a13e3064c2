from dataclasses import replace
from random import Random

import pytest

from proxy.hardware.fit import (
    GIB,
    STEP,
    CacheType,
    Caching,
    Device,
    Memory,
    bytes_per_token,
    cache_bytes,
    largest_window,
    need,
    ollama_default_window,
)
from proxy.hardware.shape import Layer, ModelShape

GPU = Device("some GPU", 30, 20)


def test_the_method_without_devices_moves_all_devices_to_unused() -> None:
    assert Memory(100, 50, (GPU,)).without_devices() == Memory(100, 50, unused=(GPU,))


FULL = Layer(8, 128, 128)
# the dimensions of Qwen3-8B, with weights of four bits
EIGHT_BILLION = ModelShape(5 * GIB, (FULL,) * 36, 40_960, 0, 151_936, 4096, 12_288)
MIXED = ModelShape(
    GIB,
    (replace(FULL, is_sliding=True), FULL, Layer(0, 0, 0, state_bytes=1000)) * 10,
    131_072,
    1024,
)
HOST = Memory(32 * GIB, 20 * GIB)


def gpu(free: int, *, is_unified: bool = False) -> Device:
    return Device("some device", 24 * GIB, free, is_unified)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("f32", 4096),
        ("f16", 2048),
        ("bf16", 2048),
        ("q8_0", 1088),
        ("q5_1", 768),
        ("q5_0", 704),
        ("q4_1", 640),
        ("q4_0", 576),
        ("iq4_nl", 576),
    ],
)
def test_the_size_of_a_cache_row_depends_on_the_cache_type(name: str, row: int) -> None:
    (kind_,) = [kind for kind in CacheType if kind.word == name]
    assert kind_.size(1024) == row
    assert kind_.size(1) == kind_.block_bytes


def test_the_cache_size_is_proportional_to_window_and_slots() -> None:
    assert bytes_per_token(EIGHT_BILLION, Caching()) == 36 * 2 * 8 * 128 * 2
    assert cache_bytes(EIGHT_BILLION, 8192, Caching()) == 8192 * 36 * 2 * 8 * 128 * 2
    assert cache_bytes(EIGHT_BILLION, 8192, Caching(3)) == 3 * 8192 * 36 * 2 * 8 * 128 * 2
    mixed = Caching(1, CacheType.Q8_0, CacheType.Q4_0)
    assert bytes_per_token(EIGHT_BILLION, mixed) == 36 * (1088 + 576)


def test_the_cache_of_sliding_and_recurrent_layers_does_not_grow_with_large_windows() -> None:
    token = 2 * 8 * 128 * 2
    for window, sliding in ((512, 512), (1536, 1536), (8192, 1536), (131_072, 1536)):
        expected = 10 * (token * (window + sliding) + 1000)
        assert cache_bytes(MIXED, window, Caching()) == expected
    assert bytes_per_token(MIXED, Caching()) == 10 * token


def test_a_quantized_cache_suits_only_head_sizes_that_are_multiples_of_its_block() -> None:
    uneven = ModelShape(GIB, (Layer(8, 80, 80), Layer(0, 0, 0)), 4096)
    quantized = Caching(1, CacheType.Q8_0, CacheType.Q8_0)
    assert quantized.suits(EIGHT_BILLION)
    assert Caching().suits(uneven)
    assert not quantized.suits(uneven)
    assert not replace(quantized, keys=CacheType.F16).suits(uneven)


def test_the_largest_window_is_limited_by_the_device() -> None:
    fit = largest_window(EIGHT_BILLION, replace(HOST, devices=(gpu(9 * GIB),)), Caching())
    assert (fit.on_host, fit.room) == (0, 8 * GIB)
    assert fit.need.total <= 8 * GIB
    assert fit.window % STEP == 0
    assert need(EIGHT_BILLION, fit.window + STEP, Caching()).total > 8 * GIB


def test_the_largest_window_does_not_exceed_the_trained_context() -> None:
    shape = replace(EIGHT_BILLION, trained_context=10_000)
    assert largest_window(shape, replace(HOST, devices=(gpu(80 * GIB),)), Caching()).window == 9984


def test_the_usable_memory_is_the_sum_of_all_devices_minus_a_margin_for_each() -> None:
    two = replace(HOST, devices=(gpu(5 * GIB), gpu(5 * GIB), gpu(GIB // 2)))
    assert largest_window(EIGHT_BILLION, two, Caching()).room == 8 * GIB


def test_a_quantized_cache_or_fewer_slots_give_a_larger_window() -> None:
    memory = replace(HOST, devices=(gpu(9 * GIB),))
    four = largest_window(EIGHT_BILLION, memory, Caching(4)).window
    plain = largest_window(EIGHT_BILLION, memory, Caching()).window
    small = Caching(1, CacheType.Q8_0, CacheType.Q8_0)
    assert 0 < four < plain < largest_window(EIGHT_BILLION, memory, small).window


def test_without_a_device_the_memory_of_the_host_is_used() -> None:
    fit = largest_window(EIGHT_BILLION, HOST, Caching())
    assert (fit.room, fit.on_host) == (19 * GIB, 0)


def test_a_model_larger_than_the_device_also_uses_host_memory() -> None:
    small = replace(HOST, devices=(gpu(4 * GIB),))
    fit = largest_window(EIGHT_BILLION, small, Caching())
    assert fit.room == 3 * GIB + 19 * GIB
    assert fit.window == 40_960
    assert fit.on_host == fit.need.total - 3 * GIB


def test_host_memory_is_also_used_if_only_a_tiny_window_fits_on_the_device() -> None:
    just = need(EIGHT_BILLION, 2048, Caching()).total + GIB
    fit = largest_window(EIGHT_BILLION, replace(HOST, devices=(gpu(just),)), Caching())
    assert fit.window == 40_960
    short = replace(EIGHT_BILLION, trained_context=2048)
    fit = largest_window(short, replace(HOST, devices=(gpu(just),)), Caching())
    assert (fit.window, fit.on_host) == (2048, 0)


def test_memory_shared_by_host_and_gpu_is_counted_once() -> None:
    apple = Memory(16 * GIB, 12 * GIB, (gpu(10 * GIB, is_unified=True),))
    assert largest_window(EIGHT_BILLION, apple, Caching()).room == 9 * GIB
    busy = Memory(16 * GIB, 5 * GIB, (gpu(10 * GIB, is_unified=True),))
    assert largest_window(EIGHT_BILLION, busy, Caching()).room == int(4.5 * GIB)


def test_the_largest_window_is_0_for_a_model_that_does_not_fit() -> None:
    fit = largest_window(EIGHT_BILLION, Memory(2 * GIB, GIB), Caching())
    assert (fit.window, fit.on_host) == (0, 0)
    assert fit.need.total > fit.room


def test_largest_window_returns_the_largest_of_all_windows_that_fit() -> None:
    chance = Random(5)
    for _ in range(200):
        layers = tuple(
            Layer(chance.choice([0, 1, 8]), 64, 64, chance.random() < 0.5, chance.randrange(9999))
            for _ in range(chance.randrange(1, 40))
        )
        shape = ModelShape(chance.randrange(GIB), layers, chance.randrange(300, 20_000), 700)
        memory = Memory(4 * GIB, chance.randrange(2 * GIB), (gpu(chance.randrange(3 * GIB)),))
        caching = Caching(chance.randrange(1, 5))
        fit = largest_window(shape, memory, caching)
        windows = range(0, shape.trained_context + 1, STEP)
        fitting = [window for window in windows if need(shape, window, caching).total <= fit.room]
        assert fit.window == max(fitting, default=0)


@pytest.mark.parametrize(
    ("gib", "window"), [(0, 4096), (22.9, 4096), (23, 32_768), (46.9, 32_768), (47, 262_144)]
)
def test_the_default_window_of_ollama_depends_on_the_gpu_memory(gib: float, window: int) -> None:
    assert ollama_default_window(int(gib * GIB)) == window
