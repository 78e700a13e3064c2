import struct
from pathlib import Path

import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter

from proxy.hardware.shape import Layer
from proxy.processes.model_file import UNREADABLE, ModelFile, Unread, read_header, read_model_file
from tests.fakes.llama import build_model


@pytest.fixture(scope="module")
def header_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("model") / "some-model.gguf")


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def start(count: int, version: int = 3) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", version, 0, count)


def test_read_header_returns_the_same_values_as_the_gguf_library(header_file: Path) -> None:
    ours = read_header(header_file)
    fields = {
        name: field for name, field in GGUFReader(header_file).fields.items() if "GGUF." not in name
    }
    assert ours.keys() == fields.keys()
    for name, field in fields.items():
        if field.types[0] is GGUFValueType.ARRAY:
            assert ours[name] in (Unread(len(field.data)), tuple(field.contents()))
        else:
            assert ours[name] == field.contents()


def test_read_header_returns_short_lists_of_numbers_but_only_the_length_of_other_lists(
    tmp_path: Path,
) -> None:
    writer = GGUFWriter(tmp_path / "model.gguf", "some")
    writer.add_int8("a", -3)
    writer.add_uint64("b", 1 << 40)
    writer.add_float64("c", 0.5)
    writer.add_bool("d", val=True)
    writer.add_array("e", [1, -2, 3])
    writer.add_array("f", [True, False])
    writer.add_array("g", list(range(5000)))
    writer.add_string("h", "Grüße")
    writer.add_array("i", ["x", "yz"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert read_header(tmp_path / "model.gguf") == {
        "general.architecture": "some",
        "a": -3,
        "b": 1 << 40,
        "c": 0.5,
        "d": True,
        "e": (1, -2, 3),
        "f": (True, False),
        "g": Unread(5000),
        "h": "Grüße",
        "i": Unread(2),
    }


def test_a_header_truncated_at_any_byte_raises_an_error(header_file: Path, tmp_path: Path) -> None:
    whole = header_file.read_bytes()
    end = whole.index(b"token_embd.weight") - 8
    read_header(write(tmp_path / "cut.gguf", whole[:end]))
    for size in (*range(0, 300), *range(300, end, 997)):
        with pytest.raises(UNREADABLE):
            read_header(write(tmp_path / "cut.gguf", whole[:size]))


STRING = struct.pack("<Q1s", 1, b"k")


@pytest.mark.parametrize(
    "content",
    [
        start(0, version=1),
        b"GGML" + start(0)[4:],
        start(1) + STRING + struct.pack("<I", 77),
        start(1) + STRING + struct.pack("<IIQ", 9, 77, 1),
        start(1) + STRING + struct.pack("<IIQ", 9, 9, 1),
        start(1) + STRING + struct.pack("<IIQ", 9, 8, 1 << 60),
        start(1) + STRING + struct.pack("<IIQQQ", 9, 8, 2, (1 << 64) - 1, 1),
        start(2) + STRING + struct.pack("<IIQ", 9, 5, 1 << 20),
        start(1) + STRING + struct.pack("<IQ2s", 8, 2, b"\xff\xfe"),
        start(1 << 60),
    ],
)
def test_a_header_with_invalid_content_raises_an_error(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(UNREADABLE):
        read_header(write(tmp_path / "nonsense.gguf", content))


def test_the_field_after_a_large_vocabulary_is_read(tmp_path: Path) -> None:
    words = b"".join(struct.pack("<Q3s", 3, b"abc") for _ in range(150_000))
    content = start(2) + STRING + struct.pack("<IIQ", 9, 8, 150_000) + words
    path = write(tmp_path / "large.gguf", content + STRING + struct.pack("<II", 4, 7))
    assert read_header(path)["k"] == 7


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("model") / "some-model.gguf")


def test_names_architecture_and_chat_template_are_read_from_a_model_file(model: Path) -> None:
    file = read_model_file(model)
    assert file.names == (str(model), "scripted")
    assert file.architecture == "qwen2"
    assert "<tool_call>" in file.template


def test_the_shape_of_a_model_is_read_from_its_metadata(model: Path) -> None:
    shape = read_model_file(model).shape
    assert shape is not None
    assert shape.layers == (Layer(1, 64, 64),)
    assert (shape.weights, shape.trained_context) == (model.stat().st_size, 8192)
    assert shape.vocabulary > 256


def test_the_weights_of_a_split_model_are_the_sum_of_its_files(model: Path, tmp_path: Path) -> None:
    first = tmp_path / "big-00001-of-00003.gguf"
    first.write_bytes(model.read_bytes())
    (tmp_path / "big-00002-of-00003.gguf").write_bytes(b"x" * 1000)
    (tmp_path / "big-00002-of-00004.gguf").write_bytes(b"x" * 5000)
    shape = read_model_file(first).shape
    assert shape is not None
    assert shape.weights == model.stat().st_size + 1000


def test_a_model_name_that_is_not_a_string_is_skipped(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "odd.gguf", "llama")
    writer.add_uint32("general.name", 3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    odd = ModelFile((str(tmp_path / "odd.gguf"),), "llama")
    assert read_model_file(tmp_path / "odd.gguf") == odd


@pytest.mark.parametrize("size", [0, 4, 20, 100, 3000])
def test_read_model_file_returns_only_the_path_as_a_name_for_a_truncated_file(
    model: Path, tmp_path: Path, size: int
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(model.read_bytes()[:size])
    assert read_model_file(broken) == ModelFile((str(broken),))


@pytest.mark.parametrize("content", [b"no model at all", b"GGUF\x03\0\0\0" + b"\xff" * 64])
def test_read_model_file_returns_only_the_path_as_a_name_for_a_file_of_another_format(
    tmp_path: Path, content: bytes
) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(content)
    assert read_model_file(other).names == (str(other),)


def test_read_model_file_returns_only_the_path_as_a_name_for_a_missing_file(tmp_path: Path) -> None:
    assert read_model_file(tmp_path / "none.gguf") == ModelFile((str(tmp_path / "none.gguf"),))
