import sys
from pathlib import Path

import pytest

from proxy.processes.model_file import ModelFile, read_model_file
from tests.fakes.llama import build_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("model") / "some-model.gguf")


def test_a_model_is_known_by_its_names_its_architecture_and_its_template(model: Path) -> None:
    file = read_model_file(model)
    assert file.names == (str(model), "scripted")
    assert file.architecture == "qwen2"
    assert "<tool_call>" in file.template


def test_without_the_library_a_file_has_its_name(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert read_model_file(model) == ModelFile((str(model),))


@pytest.mark.parametrize("size", [0, 4, 20, 100, 3000])
def test_a_broken_file_has_its_name(model: Path, tmp_path: Path, size: int) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(model.read_bytes()[:size])
    assert read_model_file(broken) == ModelFile((str(broken),))


@pytest.mark.parametrize("content", [b"no model at all", b"GGUF\x03\0\0\0" + b"\xff" * 64])
def test_a_file_of_another_kind_has_its_name(tmp_path: Path, content: bytes) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(content)
    assert read_model_file(other).names == (str(other),)


def test_a_file_that_is_not_there_has_its_name(tmp_path: Path) -> None:
    assert read_model_file(tmp_path / "none.gguf") == ModelFile((str(tmp_path / "none.gguf"),))
