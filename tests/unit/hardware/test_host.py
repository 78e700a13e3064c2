from pathlib import Path

import psutil
import pytest

from proxy.hardware.host import host_memory

GIB = 1 << 30


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 64 GiB of which 48 are free."""
    found = psutil.virtual_memory()._replace(total=64 * GIB, available=48 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: found)


def group(root: Path, name: str, limit: str, current: str, stat: str = "") -> None:
    folder = root / "sys/fs/cgroup" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(limit + "\n", encoding="utf-8")
    (folder / "memory.current").write_text(current + "\n", encoding="utf-8")
    (folder / "memory.stat").write_text(stat, encoding="utf-8")


def member(root: Path, name: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    text = f"1:cpu:/elsewhere\n0::/{name}\n"
    (root / "proc/self/cgroup").write_text(text, encoding="utf-8")


def test_without_limits_the_whole_machine_counts(tmp_path: Path) -> None:
    assert host_memory(tmp_path) == (64 * GIB, 48 * GIB)
    group(tmp_path, "", "max", str(GIB))
    assert host_memory(tmp_path) == (64 * GIB, 48 * GIB)


def test_a_container_has_what_it_is_allowed_and_gets_cached_files_back(tmp_path: Path) -> None:
    stat = f"anon 5\ninactive_file {3 * GIB}\nactive_file 7\n"
    group(tmp_path, "", str(8 * GIB), str(5 * GIB), stat)
    assert host_memory(tmp_path) == (8 * GIB, 6 * GIB)


def test_every_group_around_ours_has_a_say(tmp_path: Path) -> None:
    member(tmp_path, "outer/inner")
    group(tmp_path, "outer/inner", str(32 * GIB), str(GIB))
    group(tmp_path, "outer", str(16 * GIB), str(12 * GIB))
    group(tmp_path, "another", str(GIB), str(GIB))
    assert host_memory(tmp_path) == (16 * GIB, 4 * GIB)


def test_a_limit_that_is_overdrawn_leaves_nothing(tmp_path: Path) -> None:
    group(tmp_path, "", str(GIB), str(2 * GIB), "inactive_file none\n")
    assert host_memory(tmp_path) == (GIB, 0)


def test_a_name_that_leads_out_of_the_tree_changes_nothing(tmp_path: Path) -> None:
    member(tmp_path, "../../..")
    assert host_memory(tmp_path) == (64 * GIB, 48 * GIB)


def test_a_system_that_does_not_tell_has_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise FileNotFoundError

    monkeypatch.setattr(psutil, "virtual_memory", fail)
    assert host_memory(tmp_path) == (0, 0)
