from pathlib import Path

import pytest

from proxy import bounds
from proxy.errors import InvalidConfiguration
from proxy.files import list_shipped, read_text, read_toml


def write_file(folder: Path, content: bytes) -> Path:
    path = folder / "temper.toml"
    path.write_bytes(content)
    return path


def test_a_document_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = write_file(tmp_path, b"\xef\xbb\xbfa.b = 1")
    assert read_text(path) == "a.b = 1"
    assert read_toml(path) == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b"a =", "is not valid TOML", id="no toml"),
        pytest.param(b"a = " + b"[" * 100_000, "is nested too deeply", id="depth"),
        pytest.param(b"a." * bounds.KEY_PARTS + b"a = 1", "has a key of more", id="key"),
        pytest.param(b"a = 0x" + b"f" * bounds.DIGITS, "has a number of more", id="digits"),
        pytest.param(b"a = '\xff'", "is not a text file in UTF-8", id="bytes"),
        pytest.param(b"#" * (bounds.FILE_BYTES + 1), "is larger than", id="size"),
    ],
)
def test_the_error_for_an_invalid_document_names_the_file(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = write_file(tmp_path, content)
    with pytest.raises(InvalidConfiguration, match=problem) as refused:
        read_toml(path)
    assert refused.value.setting == str(path)


def test_the_error_for_an_unreadable_file_names_its_setting(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="gone cannot be read") as refused:
        read_text(tmp_path / "gone", "server.keys_file")
    assert refused.value.setting == "server.keys_file"
    with pytest.raises(InvalidConfiguration, match="cannot be read"):
        read_text(tmp_path / "a\0b")


@pytest.mark.parametrize("folder", ["models", "announcements"])
def test_list_shipped_returns_the_toml_files_of_a_folder_sorted_by_name(
    folder: str, tmp_path: Path
) -> None:
    beside = list_shipped(folder)
    assert [file.name for file in beside] == sorted(file.name for file in beside)
    assert all(file.name.endswith(".toml") for file in beside)
    (tmp_path / folder).mkdir()
    write_file(tmp_path / folder, b"")
    assert [file.name for file in list_shipped(folder, tmp_path)] == ["temper.toml"]
