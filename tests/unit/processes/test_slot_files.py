import os
import stat
import sys
import time
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from proxy.processes.launch import LaunchPlan, embedded_program
from proxy.processes.slot_files import SlotFiles, slot_files

DAY = 86_400


@pytest.fixture
def plan(tmp_path: Path) -> LaunchPlan:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    return LaunchPlan((sys.executable,), model, 4096, slots=2, alias="coder")


def key(plan: LaunchPlan, build: str = "b1") -> str:
    return slot_files(Path(), plan, build, "").key


def write(files: SlotFiles, name: str, size: int = 10, *, days: float = 0) -> Path:
    path = files.folder / name
    path.write_bytes(b"x" * size)
    moment = time.time() - days * DAY
    os.utime(path, (moment, moment))
    return path


def save(files: SlotFiles, slot: int, tokens: int, size: int = 10, *, days: float = 0) -> Path:
    name = f"{files.owner}-{files.key}-{slot}-{tokens}.slot"
    return write(files, name, size, days=days)


@pytest.fixture
def files(tmp_path: Path) -> SlotFiles:
    folder = tmp_path / "slots"
    folder.mkdir()
    return SlotFiles(folder, "0" * 8, "1" * 16)


def test_another_build_or_another_value_in_the_launch_plan_changes_the_key(
    plan: LaunchPlan, tmp_path: Path
) -> None:
    adapter = tmp_path / "adapter.gguf"
    adapter.write_bytes(b"GGUF")
    plans = [
        plan,
        replace(plan, context_tokens=8192),
        replace(plan, slots=1),
        replace(plan, flash_attention="off"),
        replace(plan, cache_type_k="q8_0"),
        replace(plan, cache_type_v="q8_0"),
        replace(plan, program=embedded_program()),
        replace(plan, extra=("--lora", str(adapter))),
        replace(plan, extra=(f"--lora-scaled={adapter}:0.5",)),
        replace(plan, extra=("--rope-scaling", "yarn")),
    ]
    assert len({key(each) for each in plans} | {key(plan, "b2")}) == len(plans) + 1


def test_a_changed_model_or_adapter_file_changes_the_key(plan: LaunchPlan, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter.gguf"
    adapter.write_bytes(b"GGUF")
    adapted = replace(plan, extra=("--lora", f"{tmp_path / 'none.gguf'},{adapter}"))
    before = key(plan), key(adapted)
    os.utime(adapter, (1, 1))
    assert key(plan) == before[0]
    assert key(adapted) != before[1]
    assert isinstance(plan.model, Path)
    plan.model.write_bytes(b"GGUF and more")
    assert key(plan) != before[0]


def test_an_environment_variable_of_llama_server_changes_the_key(
    plan: LaunchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key(plan)
    monkeypatch.setenv("LLAMA_ARG_CACHE_TYPE_K", "q4_0")
    assert key(plan) != before


def test_another_port_or_slot_folder_does_not_change_the_key(
    plan: LaunchPlan, tmp_path: Path
) -> None:
    assert key(replace(plan, port=9931, slot_folder=tmp_path)) == key(plan)


def test_the_key_of_a_downloaded_model_depends_on_the_file_that_the_server_reports(
    plan: LaunchPlan, tmp_path: Path
) -> None:
    downloaded = replace(plan, model="owner/name:Q4_K_M")
    with pytest.raises(OSError, match="owner/name"):
        slot_files(Path(), downloaded, "b1", "")
    reported = str(tmp_path / "model.gguf")
    before = slot_files(Path(), downloaded, "b1", reported).key
    (tmp_path / "model.gguf").write_bytes(b"GGUF of another quantization")
    assert slot_files(Path(), downloaded, "b1", reported).key != before


def test_an_unknown_version_of_the_embedded_server_raises_os_error(
    plan: LaunchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(_name: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr("proxy.processes.slot_files.version", version)
    with pytest.raises(OSError, match="version of xllamacpp is unknown"):
        key(replace(plan, program=embedded_program()))


def test_saved_lists_the_latest_file_of_each_slot_of_this_server(files: SlotFiles) -> None:
    save(files, 0, 100, days=2)
    save(files, 1, 200, days=1)
    save(files, 1, 300)
    write(files, f"{'f' * 8}-{files.key}-1-400.slot")
    write(files, "notes.txt")
    assert [(saved.slot, saved.tokens) for saved in files.saved()] == [(1, 300), (0, 100)]


def test_keep_sets_mode_0600_and_replaces_the_previous_file_of_the_slot(files: SlotFiles) -> None:
    before, other = save(files, 0, 100), save(files, 1, 100)
    files.temporary(0).write_bytes(b"12345")
    saved = files.keep(0, 7, 5, time.time())
    assert stat.S_IMODE(saved.path.stat().st_mode) == 0o600
    assert set(files.folder.iterdir()) == {saved.path, other}
    assert not before.exists()


def test_keep_raises_os_error_if_the_file_is_shorter_than_reported(files: SlotFiles) -> None:
    files.temporary(0).write_bytes(b"1234")
    with pytest.raises(OSError, match="is the disk full"):
        files.keep(0, 7, 5, time.time())
    assert not files.saved()


def test_clean_removes_files_that_are_a_week_old_or_have_another_key(files: SlotFiles) -> None:
    kept = {
        save(files, 0, 100, days=6),
        write(files, f"{'f' * 8}-{'a' * 16}-0-10.slot"),  # of another server
        write(files, f"{files.owner}-1-0.tmp"),  # an incomplete file that was just written
        write(files, "notes.txt", days=100),
        write(files, "notes.tmp", days=100),
    }
    save(files, 1, 100, days=8)
    write(files, f"{files.owner}-{'a' * 16}-0-10.slot")  # of this server, with another key
    write(files, f"{'f' * 8}-1-0.tmp", days=1)  # an incomplete file of a process that died
    files.clean(10**9)
    assert set(files.folder.iterdir()) == kept


def test_clean_removes_the_oldest_files_above_the_size_limit(files: SlotFiles) -> None:
    kept = {save(files, 0, 1, 40), write(files, f"{'f' * 8}-{'a' * 16}-0-1.slot", 40, days=1)}
    save(files, 1, 1, 40, days=2)
    files.clean(100)
    assert set(files.folder.iterdir()) == kept


def test_remove_all_does_not_remove_the_files_of_other_servers(files: SlotFiles) -> None:
    save(files, 0, 1)
    save(files, 0, 2)
    other = write(files, f"{'f' * 8}-{'a' * 16}-0-1.slot")
    files.remove_all()
    assert set(files.folder.iterdir()) == {other}
