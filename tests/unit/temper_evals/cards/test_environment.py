"""The model, engine and hardware in a card, without private names."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gguf import GGUFWriter

from benchmarks.faults.toxics import Caller
from proxy.errors import InvalidConfiguration
from proxy.hardware.fit import GIB, Device, Memory
from proxy.processes.launch import LaunchPlan, embedded_program
from temper_evals.cards import environment as module
from temper_evals.cards.card import Engine, Environment, Gpu, Hardware, Model
from temper_evals.cards.environment import (
    ENVIRONMENTS,
    embedded_engine,
    file_environment,
    find_engine,
    gpu_name,
    model_name,
    normalized,
    note_environment,
    only_environment,
    power_of_two,
    processor_in,
    quantization_of,
    read_environments,
    served_environment,
    sha256_of,
    simulated_environment,
    this_hardware,
    with_digest,
)
from temper_evals.loop import ModelTarget
from tests.fakes.raw_backend import raw_backend

_MOST_CONNECTIONS = 8

SIMULATED = Environment(model=Model(name="p-small", simulated=True))


@asynccontextmanager
async def engine_with(documents: Mapping[str, object]) -> AsyncGenerator[str, None]:
    """Serve JSON documents by their paths, and status 404 for other paths."""

    async def answer(caller: Caller) -> None:
        while request := await caller.request():
            path = request.split(b" ")[1].decode()
            status = 200 if path in documents else 404
            body = json.dumps(documents.get(path, {})).encode()
            head = f"HTTP/1.1 {status} Any\r\ncontent-length: {len(body)}\r\n\r\n"
            await caller.send(head.encode() + body)

    async with raw_backend(*[answer] * _MOST_CONNECTIONS) as backend:
        yield backend.url


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/home/ada/models/Qwen3-8B-Q4_K_M.gguf", "Qwen3-8B-Q4_K_M"),
        (r"C:\Users\Ada\Qwen3-8B.GGUF", "Qwen3-8B"),
        ("Qwen/Qwen3-8B", "Qwen3-8B"),
        ("hf.co/bartowski/Qwen3-8B-GGUF:Q4_K_M", "Qwen3-8B-GGUF:Q4_K_M"),
        ("qwen3:8b", "qwen3:8b"),
        ("big-00001-of-00003.gguf", "big"),
        ("http://ada:secret@10.0.0.7:8080/v1/", "v1"),
        ("ada@example.com", "ada-example.com"),
        ("10.0.0.7:8080", "unnamed"),
        ("sk-proj-4Nb82kqPz71LmVt93XcRw5Yd", "unnamed"),
        ("my secret model", "my-secret-model"),
        ("/", "unnamed"),
        ("", "unnamed"),
    ],
)
def test_model_name_removes_folders_hosts_and_keys(name: str, shown: str) -> None:
    assert model_name(name) == shown


def test_the_name_of_a_simulated_model_contains_its_parameters() -> None:
    named = simulated_environment("p-small@over_acting=0.1").model
    assert (named.name, named.simulated) == ("p-small-over_acting-0.1", True)


@pytest.mark.parametrize(
    ("text", "usual"),
    [
        ("Q4_K - Medium", "Q4_K_M"),
        ("Q3_K - Large", "Q3_K_L"),
        ("(guessed) Q8_0", "Q8_0"),
        ("IQ2_XXS - 2.0625 bpw", "IQ2_XXS"),
        ("all F32", "F32"),
        ("MXFP4 MoE", "MXFP4_MoE"),
        ("", ""),
    ],
)
def test_a_quantization_is_normalized_to_its_usual_name(text: str, usual: str) -> None:
    assert normalized(text) == usual


def write_model(path: Path, file_type: int | None = None) -> Path:
    writer = GGUFWriter(path, "llama")
    if file_type is not None:
        writer.add_file_type(file_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_the_quantization_is_read_from_the_gguf_header_or_else_from_the_file_name(
    tmp_path: Path,
) -> None:
    assert quantization_of(write_model(tmp_path / "a-q4.gguf", 15)) == "Q4_K_M"
    assert quantization_of(write_model(tmp_path / "b.gguf", 0)) == "F32"
    assert quantization_of(write_model(tmp_path / "c-Q5_K_S.gguf")) == "Q5_K_S"
    assert quantization_of(write_model(tmp_path / "d-Q5_K_S.gguf", 9999)) == "Q5_K_S"
    assert quantization_of(tmp_path / "none.gguf") is None


def test_the_digest_of_a_split_model_is_that_of_all_its_parts(tmp_path: Path) -> None:
    whole, first = tmp_path / "a.gguf", tmp_path / "b-00001-of-00002.gguf"
    whole.write_bytes(b"12")
    first.write_bytes(b"1")
    assert sha256_of(first) is None
    (tmp_path / "b-00002-of-00002.gguf").write_bytes(b"2")
    assert sha256_of(first) == sha256_of(whole)
    assert with_digest(SIMULATED, whole).model.sha256 == sha256_of(whole)


async def test_build_and_quantization_are_read_from_props_of_llama_server() -> None:
    listed = {"data": [{"id": "/srv/ada/qwen.gguf", "owned_by": "llamacpp"}]}
    properties = {"build_info": "b11669-2f0a35c", "model_ftype": "Q4_K - Medium"}
    async with engine_with({"/v1/models": listed, "/props": properties}) as url:
        known = await served_environment(ModelTarget(url, "/srv/ada/qwen.gguf"))
    assert known.model == Model(name="qwen", quantization="Q4_K_M")
    assert known.engine == Engine(name="llama.cpp", build="b11669-2f0a35c")
    assert known.hardware is not None


async def test_version_and_quantization_are_read_from_the_api_of_ollama() -> None:
    other = {"name": "a:latest", "details": {"quantization_level": "Q8_0"}}
    model = {"name": "qwen3:latest", "details": {"quantization_level": "Q4_K_M"}}
    documents = {
        "/v1/models": {"data": [{"id": "qwen3:latest", "owned_by": "library"}]},
        "/api/version": {"version": "0.34.0"},
        "/api/tags": {"models": [other, model]},
        "/api/show": {"details": {"family": "qwen3"}, "model_info": {}, "capabilities": ["tools"]},
    }
    async with engine_with(documents) as url:
        known = await served_environment(ModelTarget(url, "qwen3"))
    assert known.model == Model(name="qwen3", quantization="Q4_K_M")
    assert known.engine == Engine(name="Ollama", build="0.34.0")


@pytest.mark.parametrize(
    ("version", "build"),
    [
        ("0.11.0rc1.dev12+g1234567", "0.11.0rc1"),
        ("built by ada", None),
    ],
)
async def test_the_build_of_vllm_is_shown_without_its_development_part(
    version: str, build: str | None
) -> None:
    documents = {
        "/v1/models": {"data": [{"id": "m", "owned_by": "vllm"}]},
        "/version": {"version": version},
    }
    async with engine_with(documents) as url:
        assert await find_engine(ModelTarget(url, "m")) == Engine(name="vLLM", build=build)


async def test_the_engine_of_an_unknown_or_unreachable_server_is_named_other() -> None:
    listed = {"data": [{"id": "m-Q4_0", "owned_by": "ada"}]}
    async with engine_with({"/v1/models": listed}) as url:
        known = await served_environment(ModelTarget(url, "m-Q4_0"))
    assert known.engine == Engine(name="other")
    assert known.model.quantization == "Q4_0"
    unreachable = await served_environment(ModelTarget(url, "m"))
    assert unreachable.engine == Engine(name="other")


async def test_the_hardware_of_a_server_on_another_machine_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "is_loopback", lambda _host: False)
    async with engine_with({}) as url:
        assert (await served_environment(ModelTarget(url, "m"))).hardware is None


def test_the_engine_of_the_embedded_server_is_xllamacpp_with_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "version", lambda _name: "2026.10.11549")
    assert embedded_engine() == Engine(name="xllamacpp", build="2026.10.11549")


def test_file_environment_returns_model_quantization_and_hardware(tmp_path: Path) -> None:
    model = write_model(tmp_path / "a.gguf", 15)
    launch = LaunchPlan(embedded_program(), model, 4096)
    known = file_environment(model, launch, Engine(name="xllamacpp"))
    assert known.model == Model(name="a", quantization="Q4_K_M")
    assert known.hardware is not None


def test_memory_sizes_are_rounded_and_unknown_gpus_are_named_other() -> None:
    card = Device("NVIDIA GeForce RTX 4090", 24 * GIB, GIB)
    known = this_hardware(Memory(int(23.5 * GIB), GIB, (card, Device("Ada's GPU/7", GIB, GIB))))
    assert known.memory_gib == 32
    assert known.gpus == (
        Gpu(name="NVIDIA GeForce RTX 4090", memory_gib=32),
        Gpu(name="other", memory_gib=1),
    )
    assert this_hardware(Memory(0, 0)).memory_gib is None
    assert {*Hardware.model_fields} == {
        *("system", "architecture", "processor", "cores", "memory_gib", "gpus"),
    }


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA H200 MIG 1g.18gb", "NVIDIA H200 MIG 1g.18gb"),
        ("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-16GB"),
        ("Radeon RX 7900 XT/XTX", "Radeon RX 7900 XT XTX"),
        ("AMD Radeon(TM) Graphics", "AMD Radeon(TM) Graphics"),
        ("Apple M3 Max", "Apple M3 Max"),
        ("NVIDIA GPU-8d7e5a1c1b2a4f0d9e8c7b6a5f4e3d2c", "other"),
        ("", "other"),
    ],
)
def test_gpu_name_returns_known_product_names_and_other_for_any_other_text(
    name: str, shown: str
) -> None:
    assert gpu_name(name) == shown


def test_only_the_vendor_of_a_processor_is_returned() -> None:
    assert processor_in("vendor_id : AuthenticAMD", "x86_64") == "AMD"
    assert processor_in("Intel64 Family 6 Model 154, GenuineIntel", "x86_64") == "Intel"
    assert processor_in("arm Apple", "arm64") == "Apple"
    assert processor_in("CPU implementer : 0x41", "arm64") == "Arm"
    assert processor_in("", "x86_64") == "other"


@pytest.mark.parametrize(
    ("size", "power"),
    [(0, 1), (1, 1), (3, 4), (6, 8), (12, 16), (15.5, 16), (96, 128), (9999, 4096)],
)
def test_power_of_two_rounds_a_size_up_from_1_to_4096(size: float, power: int) -> None:
    assert power_of_two(size) == power


def test_an_environment_that_is_noted_twice_is_stored_once(tmp_path: Path) -> None:
    assert read_environments(tmp_path) == {}
    for _ in range(2):
        note_environment(tmp_path, "p-small", SIMULATED)
    assert read_environments(tmp_path) == {"p-small": [SIMULATED]}
    assert only_environment([SIMULATED], tmp_path) == SIMULATED


def test_a_card_requires_exactly_one_environment(tmp_path: Path) -> None:
    other = SIMULATED.model_copy(update={"engine": Engine(name="vLLM")})
    with pytest.raises(InvalidConfiguration, match=r"several environments: run .* a new folder"):
        only_environment([SIMULATED, other], tmp_path)
    with pytest.raises(InvalidConfiguration, match="before environments were recorded"):
        only_environment([], tmp_path)


def test_a_damaged_file_of_environments_raises_invalid_configuration(tmp_path: Path) -> None:
    (tmp_path / ENVIRONMENTS).write_text("{")
    with pytest.raises(InvalidConfiguration, match="run the evaluation again in a new folder"):
        read_environments(tmp_path)
