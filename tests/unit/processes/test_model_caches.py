"""Lists the models in intact, damaged and malicious caches of other programs."""

import json
import os
from pathlib import Path

import pytest

from proxy.processes.model_caches import CachedModel, list_cached_models

GGUF = b"GGUF" + b"x" * 96


def model_at(path: Path, content: bytes = GGUF) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def models_in(home: Path, **environment: str) -> list[CachedModel]:
    nowhere = {"OLLAMA_MODELS": str(home / "no-ollama")}
    return [*list_cached_models({**nowhere, **environment}, home)]


def ollama_model(home: Path, name: str, blob: str = "sha256:abc", layers: object = None) -> Path:
    folder = home / "ollama"
    manifest = folder / "manifests" / "registry.ollama.ai" / name
    layer_list = layers or [
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:t"},
        {"mediaType": "application/vnd.ollama.image.model", "digest": blob, "size": 100},
    ]
    text = json.dumps({"config": {"digest": "sha256:config"}, "layers": layer_list})
    model_at(manifest, text.encode())
    model_at(folder / "blobs" / "sha256-config", b'{"file_type": "Q4_K_M"}')
    return folder


def test_the_models_in_the_llama_cpp_cache_are_listed(tmp_path: Path) -> None:
    folder = tmp_path / ".cache" / "llama.cpp"
    path = model_at(folder / "ggml-org_Qwen3-0.6B-GGUF_Qwen3-0.6B-Q8_0.gguf")
    model_at(folder / "Qwen3.gguf.downloadInProgress")
    model_at(folder / "manifest=ggml-org=Qwen3=Q8_0.json", b"{}")
    model_at(folder / "mmproj-Qwen3-Q8_0.gguf")
    (model,) = models_in(tmp_path)
    assert model == CachedModel("llama.cpp", path.stem, path, 100, "Q8_0")
    (moved,) = models_in(tmp_path / "elsewhere", LLAMA_CACHE=str(folder))
    assert moved.path == path


def test_on_macos_the_cache_of_llama_cpp_is_in_library_caches(tmp_path: Path) -> None:
    path = model_at(tmp_path / "Library" / "Caches" / "llama.cpp" / "a-Q4_0.gguf")
    (model,) = list_cached_models({"OLLAMA_MODELS": "/nowhere"}, tmp_path, "darwin")
    assert model.path == path


def test_models_in_the_hugging_face_cache_are_listed_by_repository_and_quantization(
    tmp_path: Path,
) -> None:
    hub = tmp_path / ".cache" / "huggingface" / "hub"
    folder = hub / "models--bartowski--Qwen--Coder-GGUF"
    blob = model_at(folder / "blobs" / "0a1b")
    link = folder / "snapshots" / "c0ffee" / "Coder-IQ4_XS.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    (model,) = models_in(tmp_path)
    assert (model.owner, model.name) == ("Hugging Face", "bartowski/Qwen--Coder-GGUF:IQ4_XS")
    assert (model.path, model.size, model.quantisation) == (link, 100, "IQ4_XS")


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"])
def test_the_folder_of_the_hugging_face_cache_is_read_from_environment_variables(
    tmp_path: Path, variable: str
) -> None:
    path = model_at(tmp_path / "hub" / "models--o--n" / "snapshots" / "c" / "n-F16.gguf")
    (model,) = models_in(tmp_path / "home", **{variable: str(tmp_path / "hub")})
    assert model.path == path
    (model,) = models_in(tmp_path / "home", HF_HOME=str(tmp_path))
    assert model.path == path


def test_ollama_models_are_listed_with_their_file(tmp_path: Path) -> None:
    folder = ollama_model(tmp_path, "library/qwen3/8b")
    ollama_model(tmp_path, "someone/tuned/latest", "sha256:def")
    path = model_at(folder / "blobs" / "sha256-abc")
    first, second = models_in(tmp_path, OLLAMA_MODELS=str(folder))
    assert first == CachedModel("Ollama", "qwen3:8b", path, 100, "Q4_K_M")
    assert (second.name, second.size) == ("someone/tuned:latest", 0)
    assert second.problem.startswith("does not exist")


def test_lm_studio_models_are_listed_by_repository_and_quantization(tmp_path: Path) -> None:
    path = model_at(tmp_path / ".lmstudio" / "models" / "owner" / "name-GGUF" / "n-Q6_K.gguf")
    (model,) = models_in(tmp_path)
    assert model == CachedModel("LM Studio", "owner/name-GGUF:Q6_K", path, 100, "Q6_K")


def test_a_split_model_is_listed_once_and_a_missing_part_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / ".cache" / "llama.cpp"
    for number in (1, 2):
        model_at(folder / f"big-Q4_K_M-0000{number}-of-00002.gguf")
        model_at(folder / f"half-Q4_K_M-0000{number}-of-00003.gguf")
    big, half = models_in(tmp_path)
    assert (big.name, big.size, big.quantisation, big.problem) == ("big-Q4_K_M", 200, "Q4_K_M", "")
    assert big.path.name == "big-Q4_K_M-00001-of-00002.gguf"
    assert half.problem == "lacks 1 of its 3 parts"


@pytest.mark.parametrize(
    ("name", "quantisation"),
    [
        ("Qwen3-8B-Q4_K_M", "Q4_K_M"),
        ("model.Q5_0", "Q5_0"),
        ("gpt-oss-20b-mxfp4", "MXFP4"),
        ("Qwen3-UD-Q4_K_XL", "Q4_K_XL"),
        ("llama-bf16", "BF16"),
        ("Qwen2.5-7B", ""),
    ],
)
def test_the_quantization_is_read_from_the_file_name(
    tmp_path: Path, name: str, quantisation: str
) -> None:
    model_at(tmp_path / ".cache" / "llama.cpp" / f"{name}.gguf")
    assert [item.quantisation for item in models_in(tmp_path)] == [quantisation]


def test_a_broken_gguf_file_or_link_is_listed_with_its_problem(tmp_path: Path) -> None:
    folder = tmp_path / ".cache" / "llama.cpp"
    model_at(folder / "broken.gguf", b"<html>")
    (folder / "dangling.gguf").symlink_to(folder / "gone")
    (folder / "folder.gguf").mkdir()
    problems = {model.name: model.problem for model in models_in(tmp_path)}
    assert problems == {
        "broken": "is not a GGUF file: convert it or download the GGUF version",
        "dangling": "does not exist: check the path",
    }


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"{",
        b"[]",
        b'{"layers": 5}',
        b'{"layers": [5, {"mediaType": 1}]}',
        b"[" * 100_000,
        b"x" * (2**20 + 1),
    ],
)
def test_a_broken_ollama_manifest_is_skipped(tmp_path: Path, manifest: bytes) -> None:
    folder = tmp_path / "ollama"
    model_at(folder / "manifests" / "registry.ollama.ai" / "library" / "bad" / "1b", manifest)
    model_at(folder / "manifests" / "odd", b"{}")
    assert models_in(tmp_path, OLLAMA_MODELS=str(folder)) == []


def test_an_ollama_digest_with_a_path_does_not_read_a_file_outside_the_cache(
    tmp_path: Path,
) -> None:
    secret = model_at(tmp_path / "secret.gguf")
    folder = ollama_model(tmp_path, "library/bad/1b", "../../secret.gguf")
    (model,) = models_in(tmp_path, OLLAMA_MODELS=str(folder))
    assert model.path != secret
    assert model.problem


def test_cyclic_links_and_deeply_nested_folders_are_not_searched(tmp_path: Path) -> None:
    folder = tmp_path / ".cache" / "llama.cpp"
    model_at(folder / "one" / "a.gguf")
    (folder / "one" / "circle").symlink_to(folder)
    (folder / "again").symlink_to(folder / "one")
    model_at(folder / Path(*"123456789") / "deep.gguf")
    assert [item.name for item in models_in(tmp_path)] == ["a"]


def test_a_cache_folder_that_is_missing_or_a_file_is_skipped(tmp_path: Path) -> None:
    assert models_in(tmp_path, LLAMA_CACHE="/nowhere") == []
    model_at(tmp_path / "file")
    assert models_in(tmp_path, LLAMA_CACHE=str(tmp_path / "file")) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_cache_folder_without_read_permission_is_skipped(tmp_path: Path) -> None:
    folder = model_at(tmp_path / ".cache" / "llama.cpp" / "locked" / "a.gguf").parent
    folder.chmod(0)
    try:
        assert models_in(tmp_path) == []
    finally:
        folder.chmod(0o700)
