import subprocess
import sys
from pathlib import Path

import pytest
import xllamacpp

from proxy.processes.embedded import arguments, resolve_enumerators
from proxy.processes.launch import LaunchPlan, sampling_flags
from proxy.profiles.profile import Sampling

REPOSITORY = Path(__file__).parents[3]


def test_the_embedded_server_parses_every_flag_of_a_launch_plan() -> None:
    plan = LaunchPlan(("x",), Path("m.gguf"), 2048, slots=2, alias="name")
    options = arguments(plan.command()[1:])
    assert (options.path, options.n_ctx, options.n_parallel) == ("m.gguf", 4096, 2)
    assert (options.hostnames, options.port, options.model_alias) == (["127.0.0.1"], 0, {"name"})
    assert options.endpoint_slots
    assert options.endpoint_metrics
    assert options.use_jinja
    assert not options.ui


def test_every_parsed_option_is_an_attribute_of_xllamacpp_common_params() -> None:
    parameters = xllamacpp.CommonParams()
    names = vars(arguments(["-m", "m.gguf"])).keys() - {"path", "threads"}
    assert [
        item
        for item in sorted(names)
        if not hasattr(parameters, item) and not hasattr(parameters.sampling, item)
    ] == []


def test_the_embedded_server_parses_sampling_flags() -> None:
    everything = Sampling(0.6, 0.95, 20, 0.01, 1.05, 1.5)
    options = arguments(["-m", "m.gguf", *sampling_flags(everything)])
    assert (options.temp, options.top_p, options.top_k, options.min_p) == (0.6, 0.95, 20, 0.01)
    assert (options.penalty_repeat, options.penalty_present) == (1.05, 1.5)
    assert arguments(["-m", "m.gguf"]).temp is None


def test_flags_for_gpu_layers_flash_attention_and_cache_types_are_parsed() -> None:
    plan = LaunchPlan(
        ("x",),
        Path("m.gguf"),
        2048,
        gpu_layers=7,
        flash_attention="off",
        cache_type_k="q8_0",
        cache_type_v="f32",
    )
    options = arguments(plan.command()[1:])
    assert options.n_gpu_layers == 7
    assert resolve_enumerators(options) == {
        "flash_attn_type": xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED,
        "cache_type_k": xllamacpp.ggml_type.GGML_TYPE_Q8_0,
        "cache_type_v": xllamacpp.ggml_type.GGML_TYPE_F32,
    }
    assert resolve_enumerators(arguments(["-m", "m.gguf"])) == {}


def test_the_embedded_server_parses_embeddings_and_pooling() -> None:
    options = arguments(["-m", "m.gguf", "--embeddings", "--pooling", "mean"])
    assert options.embedding
    mean = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    assert resolve_enumerators(options) == {"pooling_type": mean}


def test_the_embedded_server_parses_context_shift() -> None:
    assert arguments(["-m", "m.gguf", "--context-shift"]).ctx_shift
    assert not arguments(["-m", "m.gguf"]).ctx_shift


def test_the_embedded_server_parses_chat_template_and_threads() -> None:
    options = arguments(["-m", "m.gguf", "--chat-template", "{{ x }}", "-t", "1"])
    assert (options.chat_template, options.threads) == ("{{ x }}", 1)
    defaults = arguments(["-m", "m.gguf"])
    assert (defaults.chat_template, defaults.threads) == ("", None)


def test_the_embedded_server_parses_sleep_idle_seconds() -> None:
    assert arguments(["-m", "m.gguf", "--sleep-idle-seconds", "300"]).sleep_idle_seconds == 300
    assert arguments(["-m", "m.gguf"]).sleep_idle_seconds == -1


def test_an_unknown_flag_exits_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["-m", "m.gguf", "--warp"])
    assert "unrecognized arguments: --warp" in capsys.readouterr().err


def test_with_a_damaged_model_the_embedded_server_exits_with_an_error_message(
    tmp_path: Path,
) -> None:
    model = tmp_path / "bad.gguf"
    model.write_bytes(b"GGUF")
    command = [sys.executable, "-m", "proxy.processes.embedded", "-m", str(model)]
    process = subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    assert process.returncode == 1
    assert "embedded llama-server: Failed to init server" in process.stderr
