"""Tests that `install` adds entries to a file of the user, and `remove` restores every byte."""

from pathlib import Path

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from proxy.launch.user_files import install, remove

ENTRIES: JsonObject = {"env": {"URL": "http://here", "MODEL": "m"}, "model": "temper/m"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "home" / "settings.json"


def value_of(file: Path) -> JsonObject:
    value = json.parse(file.read_bytes())
    assert isinstance(value, dict)
    return value


ORIGINALS = {
    "odd spacing": b'{ "theme":"dark",\r\n\t"env" : {"URL": "mine", "OTHER": "x"} }',
    "the same keys": b'{"model": "mine", "env": {"MODEL": "mine"}}\n\n',
    "an empty object": b"{}",
    "an empty file": b"",
    "not ASCII": '{"name": "Zoë ✓"}'.encode(),
}


@pytest.mark.parametrize("original", ORIGINALS.values(), ids=ORIGINALS)
@pytest.mark.parametrize("times", [1, 2])
def test_remove_restores_every_byte_that_the_file_had_before_install(
    file: Path, original: bytes, times: int
) -> None:
    file.parent.mkdir()
    file.write_bytes(original)
    file.chmod(0o600)
    for number in range(times):
        install(file, {**ENTRIES, "number": number})
    assert value_of(file)["model"] == "temper/m"
    assert remove(file, ENTRIES)
    assert file.read_bytes() == original
    assert file.stat().st_mode & 0o777 == 0o600
    assert [*file.parent.iterdir()] == [file]


@pytest.mark.parametrize("content", [ENTRIES, "text\n"], ids=["entries", "text"])
def test_remove_deletes_a_file_that_did_not_exist_before_install(
    file: Path, content: JsonObject | str
) -> None:
    install(file, content)
    assert file.exists()
    assert remove(file, content)
    assert not [*file.parent.iterdir()]


def test_install_does_not_change_other_entries_of_the_user(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(ORIGINALS["odd spacing"])
    install(file, ENTRIES)
    assert value_of(file)["theme"] == "dark"
    assert value_of(file)["env"] == {"URL": "http://here", "OTHER": "x", "MODEL": "m"}


def test_remove_does_not_undo_later_edits_of_the_user(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(ORIGINALS["odd spacing"])
    install(file, ENTRIES)
    edited = value_of(file)
    env = edited["env"]
    assert isinstance(env, dict)
    file.write_bytes(json.dump({**edited, "theme": "light", "env": {**env, "MODEL": "another"}}))
    assert remove(file, ENTRIES)
    assert value_of(file) == {
        "theme": "light",
        "env": {"URL": "mine", "OTHER": "x", "MODEL": "another"},
    }


def test_remove_without_install_returns_false_and_does_not_change_the_file(file: Path) -> None:
    assert not remove(file, ENTRIES)
    file.parent.mkdir()
    file.write_bytes(b"{}")
    assert not remove(file, ENTRIES)
    assert file.read_bytes() == b"{}"


@pytest.mark.parametrize("content", [b"// comment\n{}", b"[]", b"{"], ids=repr)
def test_installing_into_a_file_that_is_not_a_json_object_is_refused_and_changes_nothing(
    file: Path, content: bytes
) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(InvalidConfiguration, match="add the output of --print"):
        install(file, ENTRIES)
    assert file.read_bytes() == content
    assert [*file.parent.iterdir()] == [file]


def test_installing_text_over_an_existing_file_is_refused_and_does_not_change_it(
    file: Path,
) -> None:
    file.parent.mkdir()
    file.write_bytes(b"mine")
    with pytest.raises(InvalidConfiguration, match="rename it first"):
        install(file, "ours")
    assert file.read_bytes() == b"mine"


def test_install_and_remove_change_the_target_of_a_symbolic_link(
    file: Path, tmp_path: Path
) -> None:
    dotfiles = tmp_path / "dotfiles.json"
    dotfiles.write_bytes(b'{"a": 1}')
    file.parent.mkdir()
    file.symlink_to(dotfiles)
    install(file, ENTRIES)
    assert file.is_symlink()
    assert value_of(dotfiles)["model"] == "temper/m"
    assert remove(file, ENTRIES)
    assert dotfiles.read_bytes() == b'{"a": 1}'
