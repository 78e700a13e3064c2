import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from proxy.doctor.versions import describe_engine, describe_versions, find_commit


def test_describe_versions_lists_temper_its_commit_the_python_version_and_the_engine() -> None:
    versions = describe_versions()
    assert [*versions] == ["temper", "commit", "python", "engine"]
    assert all(isinstance(value, str) and value for value in versions.values())


def test_find_commit_returns_the_commit_in_commit_txt(tmp_path: Path) -> None:
    (tmp_path / "commit.txt").write_text("0123456789abcdef0123\n", encoding="ascii")
    assert find_commit(tmp_path) == "0123456789ab"


def test_find_commit_returns_the_head_of_a_git_checkout(tmp_path: Path) -> None:
    package = tmp_path / "proxy"
    package.mkdir()
    assert find_commit(package) == "unknown"

    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run([*git, "init", "--quiet"], check=True)
    assert find_commit(package) == "unknown"  # the repository has no commit
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "one"], check=True)
    head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True)
    assert find_commit(package) == head[:12]


def test_describe_engine_names_llama_server_on_path_or_the_embedded_server() -> None:
    assert describe_engine("/usr/bin/llama-server") == "llama-server at /usr/bin/llama-server"
    pytest.importorskip("xllamacpp", reason="the extra `embedded` brings it")
    assert describe_engine(None).endswith(f"xllamacpp {version('xllamacpp')}")
