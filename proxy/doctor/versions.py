"""Versions of Temper, its commit, Python and llama-server."""

import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import proxy
from proxy.conversation.json import JsonObject

_SHORT = 12  # hexadecimal digits of a commit


def describe_versions() -> JsonObject:
    """Return the versions for a bug report, by name."""
    return {
        "temper": proxy.version(),
        "commit": find_commit(Path(proxy.__file__).parent),
        "python": platform.python_version(),
        "engine": describe_engine(shutil.which("llama-server")),
    }


def find_commit(package: Path) -> str:
    """Return the commit of a package: from the file that the build wrote, or from git."""
    try:
        return (package / "commit.txt").read_text(encoding="ascii").strip()[:_SHORT]
    except FileNotFoundError:
        pass
    if (package.parent / ".git").exists():
        command = ("git", "-C", str(package.parent), "rev-parse", f"--short={_SHORT}", "HEAD")
        try:
            return subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True).strip()  # noqa: S603
        except (OSError, subprocess.CalledProcessError):
            pass
    return "unknown"


def describe_engine(on_path: str | None) -> str:
    """Describe the llama-server that Temper would start: from PATH, or else the embedded server."""
    if on_path is not None:
        return f"llama-server at {on_path}"
    try:
        return f"embedded llama-server of xllamacpp {version('xllamacpp')}"
    except PackageNotFoundError:
        return "no llama-server"
