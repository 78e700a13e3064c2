from pathlib import Path

import pytest
from gguf import GGUFWriter

from proxy.hardware.shape import Layer
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


def test_a_model_has_the_shape_that_its_file_tells(model: Path) -> None:
    shape = read_model_file(model).shape
    assert shape is not None
    assert shape.layers == (Layer(1, 64, 64),)
    assert (shape.weights, shape.trained_context) == (model.stat().st_size, 8192)
    assert shape.vocabulary > 256


def test_the_weights_of_a_split_model_are_those_of_all_its_files(
    model: Path, tmp_path: Path
) -> None:
    first = tmp_path / "big-00001-of-00003.gguf"
    first.write_bytes(model.read_bytes())
    (tmp_path / "big-00002-of-00003.gguf").write_bytes(b"x" * 1000)
    (tmp_path / "big-00002-of-00004.gguf").write_bytes(b"x" * 5000)
    shape = read_model_file(first).shape
    assert shape is not None
    assert shape.weights == model.stat().st_size + 1000


def test_names_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "odd.gguf", "llama")
    writer.add_uint32("general.name", 3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    odd = ModelFile((str(tmp_path / "odd.gguf"),), "llama")
    assert read_model_file(tmp_path / "odd.gguf") == odd


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
