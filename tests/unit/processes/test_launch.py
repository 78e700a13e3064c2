import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.load.processes import free_port
from proxy.errors import LaunchFailed
from proxy.processes import launch
from proxy.processes.launch import (
    LaunchPlan,
    check_model_file,
    check_plan,
    choose_program,
    embedded_program,
    find_program,
    sampling_flags,
    uses_devices,
)
from proxy.profiles.profile import Sampling
from tests.timeouts import TIMEOUT_SECONDS

PLAN = LaunchPlan(("s",), Path("m"), 4096)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF and more")
    return path


@pytest.mark.parametrize(
    ("plan", "begin", "end"),
    [
        (PLAN, "-m m -np 1 -c 4096", "--metrics"),
        (replace(PLAN, slots=3), "-m m -np 3 -c 12288", "--metrics"),
        (replace(PLAN, model="o/n:Q8_0"), "-hf o/n:Q8_0 -np 1 -c 4096", "--metrics"),
        (replace(PLAN, alias="qwen"), "-m m -np 1 -c 4096", "--metrics -a qwen"),
        (replace(PLAN, extra=("-t", "4")), "-m m -np 1 -c 4096", "--metrics -t 4"),
        (replace(PLAN, gpu_layers=0), "-m m -np 1 -c 4096 -ngl 0", "--metrics"),
        (replace(PLAN, flash_attention="on"), "-m m -np 1 -c 4096 -fa on", "--metrics"),
        (
            replace(PLAN, cache_type_k="q8_0", cache_type_v="q4_0", gpu_layers=12),
            "-m m -np 1 -c 4096 -ngl 12 -ctk q8_0 -ctv q4_0",
            "--metrics",
        ),
    ],
)
def test_a_launch_plan_is_converted_to_a_command_line_of_llama_server(
    plan: LaunchPlan, begin: str, end: str
) -> None:
    expected = f"s {begin} --host 127.0.0.1 --port 0 --jinja --no-webui --slots {end}"
    assert " ".join(plan.command()) == expected
    own_port = " ".join(replace(plan, port=9000).command())
    assert own_port == expected.replace("--port 0", "--port 9000")


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        (
            replace(PLAN, slots=2),
            "m on s, 2 x 4096 tokens, flash attention auto, KV cache f16/f16, a free port",
        ),
        (
            LaunchPlan(embedded_program(), "o/n", 1, gpu_layers=9, port=9000, extra=("-t", "4")),
            "o/n on the embedded server, 1 x 1 tokens, 9 layers on the GPU, flash attention auto, "
            "KV cache f16/f16, port 9000, -t 4",
        ),
    ],
)
def test_str_of_a_launch_plan_is_a_summary_in_one_line(plan: LaunchPlan, line: str) -> None:
    assert str(plan) == line


def test_sampling_flags_has_a_flag_for_each_value_that_is_set() -> None:
    published = Sampling(temperature=0.6, top_p=0.95, top_k=20, min_p=0, source="https://e.org")
    assert " ".join(sampling_flags(published)) == "--temp 0.6 --top-p 0.95 --top-k 20 --min-p 0"
    assert sampling_flags(Sampling()) == ()


def test_llama_server_on_path_is_preferred_to_the_embedded_server() -> None:
    assert choose_program("/bin/llama-server", has_embedded=True) == ("/bin/llama-server",)


def test_without_llama_server_on_path_the_embedded_server_is_used() -> None:
    assert choose_program(None, has_embedded=True) == embedded_program()


def test_without_llama_server_and_embedded_server_the_error_says_what_to_install() -> None:
    with pytest.raises(LaunchFailed, match=r"no llama-server on PATH, .* 'temper-proxy\[embedded"):
        choose_program(None, has_embedded=False)


def test_find_program_returns_llama_server_from_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "llama-server"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program() == (str(program),)


def test_a_configured_program_must_be_an_executable_file(tmp_path: Path) -> None:
    program = tmp_path / "my-llama-server"
    program.touch(mode=0o755)
    assert find_program(program) == (str(program),)
    program.chmod(0o644)
    for wrong in (program, tmp_path, tmp_path / "nowhere"):
        with pytest.raises(LaunchFailed, match="is not a program") as raised:
            find_program(wrong)
        assert raised.value.is_lasting


def test_a_launch_plan_for_the_embedded_server_with_a_hub_repository_is_rejected() -> None:
    check_plan(replace(PLAN, model="owner/name"))
    with pytest.raises(LaunchFailed, match=r"cannot download owner/name\. .* --model"):
        check_plan(replace(PLAN, program=embedded_program(), model="owner/name"))


def test_a_launch_plan_with_a_port_in_use_is_rejected(model: Path) -> None:
    plan = replace(PLAN, model=model, port=free_port())
    with (
        socket.create_server(("127.0.0.1", plan.port)),
        pytest.raises(LaunchFailed, match=r"port \d+ \(model.port\) cannot be used") as raised,
    ):
        check_plan(plan)
    assert raised.value.is_lasting
    check_plan(plan)


def test_a_file_with_the_gguf_magic_is_accepted(model: Path) -> None:
    check_model_file(model)


def test_a_path_that_is_not_a_gguf_file_is_rejected_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    for path, problem in (
        (tmp_path / "nowhere.gguf", "does not exist"),
        (tmp_path, "is a folder"),
        (tmp_path / "text.gguf", "is not a GGUF file"),
        (tmp_path / ("long" * 100), "cannot be read"),
    ):
        with pytest.raises(LaunchFailed, match=problem):
            check_model_file(path)


@pytest.fixture(autouse=True)
def _long_device_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a long timeout, because a program that times out is assumed to use devices."""
    monkeypatch.setattr(launch, "_DEVICES_SECONDS", TIMEOUT_SECONDS)


def printing_program(text: str, code: int = 0) -> Sequence[str]:
    """Return a program that prints `text` and exits with `code`, whatever its arguments are."""
    return (sys.executable, "-c", f"import sys; print({text!r}); sys.exit({code})")


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("found 1 device\nAvailable devices:\n  CUDA0: RTX (24 MiB, 23 MiB free)", 0, True),
        ("Available devices:\n", 0, False),
        ("error: invalid argument: --list-devices", 1, True),
        ("Available devices:\n", 1, True),
        ("", 0, True),
    ],
)
def test_a_program_uses_no_devices_only_if_it_prints_an_empty_list_of_devices(
    text: str, code: int, *, expected: bool
) -> None:
    assert uses_devices(printing_program(text, code)) is expected


def test_a_missing_or_hanging_program_is_assumed_to_use_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert uses_devices(("/no/such/program",))
    monkeypatch.setattr(launch, "_DEVICES_SECONDS", 0.01)
    assert uses_devices((sys.executable, "-c", "import time; time.sleep(60)"))


def test_the_list_of_devices_of_the_embedded_server_is_read() -> None:
    # the result is True only on a machine with a GPU and an xllamacpp wheel for this GPU
    import xllamacpp

    kinds = {device["type"].name for device in xllamacpp.get_device_info()}
    assert uses_devices(embedded_program()) is (kinds != {"GGML_BACKEND_DEVICE_TYPE_CPU"})
