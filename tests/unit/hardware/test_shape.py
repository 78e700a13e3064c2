import pytest

from proxy.hardware.shape import Layer, ModelShape, shape_of


def metadata_of(architecture: str, **values: object) -> dict[str, object]:
    """Return metadata of an architecture with four layers of four heads each."""
    usual: dict[str, object] = {
        "block_count": 4,
        "context_length": 1000,
        "embedding_length": 64,
        "attention_head_count": 4,
    }
    metadata = {
        f"{architecture}.{_metadata_key(name)}": value for name, value in (usual | values).items()
    }
    return {"general.architecture": architecture, **metadata}


def _metadata_key(name: str) -> str:
    for prefix in ("attention", "ssm", "shortconv", "kda", "wkv"):
        if name.startswith(f"{prefix}_"):
            return f"{prefix}.{name.removeprefix(prefix + '_')}"
    return name


def layers(architecture: str, **values: object) -> tuple[Layer, ...]:
    shape = shape_of(metadata_of(architecture, **values), 0)
    assert shape is not None
    return shape.layers


def heads(architecture: str, **values: object) -> list[int]:
    return [layer.heads for layer in layers(architecture, **values)]


def states(architecture: str, **values: object) -> list[int]:
    return [layer.state_bytes for layer in layers(architecture, **values)]


def sliding(architecture: str, **values: object) -> list[bool]:
    per_layer = layers(architecture, attention_sliding_window=512, **values)
    return [layer.is_sliding for layer in per_layer]


def test_a_llama_model_has_equal_layers() -> None:
    metadata = metadata_of(
        "llama", attention_head_count_kv=2, feed_forward_length=200, vocab_size=90
    )
    layer = Layer(2, 16, 16)
    assert shape_of(metadata, 5) == ModelShape(5, (layer,) * 4, 1000, 0, 90, 64, 200)
    assert shape_of(metadata, 5, 80) == ModelShape(5, (layer,) * 4, 1000, 0, 80, 64, 200)


def test_the_number_of_heads_is_head_count_if_head_count_kv_is_missing() -> None:
    assert heads("llama") == [4] * 4


@pytest.mark.parametrize("value", [(2, 0, 1, True), [2, 0, 1, "1"]])
def test_head_count_kv_may_be_a_list_with_a_number_for_each_layer(value: object) -> None:
    assert heads("deci", attention_head_count_kv=value)[:3] == [2, 0, 1]


def test_key_length_and_value_length_are_read_separately() -> None:
    (layer, *_) = layers("some", attention_key_length=192, attention_value_length=128)
    assert (layer.key_length, layer.value_length) == (192, 128)


def test_the_feed_forward_length_of_active_experts_is_added() -> None:
    metadata = metadata_of("moe", expert_used_count=8, expert_feed_forward_length=768)
    shape = shape_of(metadata | {"moe.feed_forward_length": [100, 6000, 100, 100]}, 0)
    assert shape is not None
    assert shape.feed_forward == 8 * 768


@pytest.mark.parametrize(
    ("missing", "value"),
    [("block_count", None), ("block_count", 1 << 31), ("context_length", "8k"), ("", None)],
)
def test_incomplete_or_invalid_metadata_has_no_shape(missing: str, value: object) -> None:
    metadata = metadata_of("llama") | {f"llama.{missing}": value}
    if not missing:
        del metadata["general.architecture"]
    assert shape_of(metadata, 0) is None


def test_a_layer_with_multi_head_latent_attention_caches_only_keys() -> None:
    (layer, *_) = layers(
        "deepseek2",
        attention_head_count_kv=1,
        attention_key_length=576,
        attention_value_length=512,
        attention_key_length_mla=192,
    )
    assert layer == Layer(1, 576, 0)


def test_the_architecture_determines_the_sliding_layers_if_the_file_has_no_pattern() -> None:
    assert sliding("gemma2") == [True, False, True, False]
    assert sliding("gemma3", block_count=7) == [True] * 5 + [False, True]
    assert sliding("gpt-oss") == [True, False, True, False]


def test_sliding_window_pattern_is_a_list_or_a_period() -> None:
    listed = [True, False, False, True]
    assert sliding("gemma4", attention_sliding_window_pattern=listed) == listed
    assert sliding("some", attention_sliding_window_pattern=[True]) == [True, False, False, False]
    assert sliding("plamo3", attention_sliding_window_pattern=3) == [True, True, False, True]


def test_layers_of_an_unknown_architecture_are_not_treated_as_sliding() -> None:
    assert sliding("some") == [False] * 4


def test_sliding_layers_use_key_length_swa_and_value_length_swa() -> None:
    per_layer = layers(
        "gemma4",
        attention_sliding_window=512,
        attention_sliding_window_pattern=[True, False, True, False],
        attention_key_length=512,
        attention_value_length=512,
        attention_key_length_swa=256,
        attention_value_length_swa=128,
    )
    assert [(layer.key_length, layer.value_length) for layer in per_layer[:2]] == [
        (256, 128),
        (512, 512),
    ]


def test_layers_that_share_the_cache_of_another_layer_have_0_heads() -> None:
    assert heads("gemma4", attention_shared_kv_layers=3) == [4, 0, 0, 0]


@pytest.mark.parametrize(("architecture", "interval"), [("qwen3next", None), ("newer", 4)])
def test_layers_between_full_attention_layers_are_recurrent(
    architecture: str, interval: int | None
) -> None:
    per_layer = layers(
        architecture,
        full_attention_interval=interval,
        ssm_conv_kernel=4,
        ssm_inner_size=64,
        ssm_state_size=16,
        ssm_group_count=2,
    )
    assert [layer.heads for layer in per_layer] == [0, 0, 0, 4]
    assert [layer.state_bytes for layer in per_layer] == [
        4 * (3 * (64 + 2 * 2 * 16) + 16 * 64)
    ] * 3 + [0]


def test_recurrent_layers_have_a_state_of_a_fixed_size() -> None:
    mamba = {"ssm_conv_kernel": 4, "ssm_inner_size": 128, "ssm_state_size": 16}
    state = 4 * (3 * 128 + 16 * 128)
    assert states("mamba", attention_head_count=0, **mamba) == [state] * 4
    assert states("jamba", attention_head_count_kv=[0, 2, 0, 2], **mamba) == [state, 0, state, 0]
    assert states("falcon-h1", attention_head_count_kv=2, **mamba) == [state] * 4
    assert states("lfm2", attention_head_count_kv=[0, 2, 0, 2], shortconv_l_cache=3) == [
        4 * 64 * 2,
        0,
        4 * 64 * 2,
        0,
    ]
    assert states("rwkv7", attention_head_count=0, wkv_head_size=16) == [4 * 64 * (16 + 2)] * 4
    kimi = {"attention_head_count_kv": [0, 0, 0, 1], "ssm_conv_kernel": 4, "kda_head_dim": 8}
    assert states("kimi-linear", **kimi) == [4 * 4 * 8 * (3 * 3 + 8)] * 3 + [0]


def test_feed_forward_layers_have_no_state() -> None:
    sizes = states(
        "nemotron_h",
        attention_head_count_kv=[0, 0, 2, 0],
        feed_forward_length=[0, 100, 0, 100],
        ssm_conv_kernel=2,
        ssm_inner_size=10,
        ssm_state_size=1,
    )
    assert sizes == [4 * (10 + 10), 0, 0, 0]
