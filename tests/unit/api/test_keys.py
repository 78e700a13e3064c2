from pathlib import Path

import pytest

from proxy.api.keys import read_keys
from proxy.errors import InvalidConfiguration


def keys_file(folder: Path, text: str) -> Path:
    path = folder / "keys"
    path.write_text(text, encoding="utf-8")
    return path


def test_each_line_of_the_keys_file_is_an_owner_and_a_key(tmp_path: Path) -> None:
    path = keys_file(tmp_path, "# ours\nalice  sk-1\n\n  bob\tsk-2#x  \n")
    assert read_keys(path) == {"alice": "sk-1", "bob": "sk-2#x"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("alice sk-1\nsk-canary", "line 2"),
        ("alice sk-canary more", "line 1"),
        ("alice sk-canaré", "line 1"),
        ("a sk-canary\na sk-canary2", "line 2"),
        ("# nobody\n", "contains no key"),
    ],
)
def test_the_error_for_an_invalid_line_has_the_number_but_not_the_text_of_the_line(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=problem) as raised:
        read_keys(keys_file(tmp_path, text))
    assert raised.value.setting == "server.api_keys_file"
    assert "canar" not in str(raised.value)


def test_a_missing_keys_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="cannot be read"):
        read_keys(tmp_path / "missing")


def test_a_byte_order_mark_is_not_part_of_the_first_owner(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(b"\xef\xbb\xbfalice secret-of-alice\n")
    assert read_keys(file) == {"alice": "secret-of-alice"}
