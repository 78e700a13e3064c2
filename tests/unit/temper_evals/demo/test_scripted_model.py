from pathlib import Path

import pytest
from gguf import GGUFReader

from temper_evals.demo.scripted_model import build_scripted_model

SCRIPTS = {"default": "Hello there.", "[[bye]]": "Good bye.", "[[nothing]]": ""}


def read(path: Path, key: str) -> object:
    field = GGUFReader(path).get_field(key)
    assert field is not None
    return field.contents()


def test_a_scripted_model_is_a_small_gguf_file_with_name_and_context_length(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    build_scripted_model(path, SCRIPTS, context_tokens=4096)
    assert path.stat().st_size < 2_000_000
    assert read(path, "general.architecture") == "qwen2"
    assert read(path, "general.name") == "scripted"
    assert read(path, "qwen2.context_length") == 4096


def test_equal_scripts_give_byte_identical_files(tmp_path: Path) -> None:
    first, second = tmp_path / "1.gguf", tmp_path / "2.gguf"
    build_scripted_model(first, SCRIPTS)
    build_scripted_model(second, SCRIPTS)
    assert first.read_bytes() == second.read_bytes()


def test_a_given_chat_template_is_stored_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    build_scripted_model(path, SCRIPTS, template="{{ messages }}")
    assert read(path, "tokenizer.chat_template") == "{{ messages }}"


@pytest.mark.parametrize(
    "scripts",
    [{}, {"[[bye]]": "Good bye."}, {"default": "Hi."} | {f"t{n}": "Bye." for n in range(63)}],
)
def test_scripts_without_a_default_or_with_more_than_62_triggers_are_refused(
    tmp_path: Path, scripts: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match="a default and at most 62 triggers"):
        build_scripted_model(tmp_path / "model.gguf", scripts)
    assert not list(tmp_path.iterdir())
