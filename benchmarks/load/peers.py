"""Other proxies, installed in separate folders outside the repository."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from proxy.conversation import json

PORTKEY = Path("portkey/node_modules/@portkey-ai/gateway")
_PACKAGES = {
    "bare": "aiohttp fastapi msgspec uvicorn[standard]",
    "forge": "forge-guardrails",
    "litellm": "litellm[proxy]",
}
# the lowest version of Python
_NEEDED: Mapping[str, tuple[int, int]] = {"bare": (3, 11), "forge": (3, 12), "litellm": (3, 10)}
_INSTALL_SECONDS = 1200
_LOOK_SECONDS = 30
_BIN = "Scripts" if sys.platform == "win32" else "bin"


class NotAvailable(Exception):
    """A proxy cannot be used on this machine; `str(error)` is the reason."""


def default_folder() -> Path:
    """Return the folder for peers in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "temper-benchmarks"


def python_of(folder: Path, name: str) -> Path:
    """Return the interpreter of an installed peer; raises NotAvailable."""
    python = folder / name / _BIN / "python"
    if not python.exists():
        raise NotAvailable("not installed; run `python -m benchmarks peers`")
    return python


def program(name: str) -> str:
    """Return the path of a program; raises NotAvailable."""
    path = shutil.which(name)
    if path is None:
        raise NotAvailable(f"{name} is not on PATH")
    return path


def install(folder: Path) -> dict[str, str]:
    """Install every proxy; returns the version of each, or the reason why it is not available."""
    folder.mkdir(parents=True, exist_ok=True)
    steps: dict[str, Callable[[], None]] = {
        "nginx": lambda: None,
        "bare": lambda: _install_python(folder, "bare"),
        "forge": lambda: _install_python(folder, "forge"),
        "litellm": lambda: _install_python(folder, "litellm"),
        "portkey": lambda: _install_portkey(folder),
    }
    return {name: _outcome(folder, name, step) for name, step in steps.items()}


def _outcome(folder: Path, name: str, step: Callable[[], None]) -> str:
    try:
        step()
        return version(folder, name)
    except NotAvailable as problem:
        return f"not available here: {problem}"


def version(folder: Path, name: str) -> str:
    """Return the version of an installed peer; raises NotAvailable."""
    match name:
        case "nginx":
            return _output([program("nginx"), "-v"]).rpartition("/")[2]
        case "portkey":
            package = folder / PORTKEY / "package.json"
            if not package.exists():
                raise NotAvailable("not installed; run `python -m benchmarks peers`")
            document = json.parse(package.read_bytes())
            return str(document["version"]) if isinstance(document, dict) else ""
        case _:
            package_name = re.split(r"[\[ ]", _PACKAGES[name])[0]
            code = f"from importlib.metadata import version; print(version('{package_name}'))"
            return _output([str(python_of(folder, name)), "-c", code])


def _install_python(folder: Path, name: str) -> None:
    needed = _NEEDED[name]
    python = next((python for python in _pythons() if _version_of(python) >= needed), None)
    if python is None:
        raise NotAvailable(f"it needs Python {needed[0]}.{needed[1]}, which was not found")
    _run([python, "-m", "venv", "--clear", str(folder / name)])
    _run([str(python_of(folder, name)), "-m", "pip", "install", "-q", *_PACKAGES[name].split()])


def _install_portkey(folder: Path) -> None:
    program("node")
    npm = program("npm")
    prefix = folder / "portkey"
    shutil.rmtree(prefix, ignore_errors=True)
    prefix.mkdir()
    # with a newer node-server, every stream fails: github.com/Portkey-AI/gateway/issues/1389
    wanted: json.JsonObject = {
        "dependencies": {"@portkey-ai/gateway": "*"},
        "overrides": {"@hono/node-server": "1.14.1"},
    }
    (prefix / "package.json").write_bytes(json.dump(wanted))
    _run([npm, "install", "--silent", "--prefix", str(prefix)])


def _pythons() -> Iterator[str]:
    """Yield the Python interpreters of this machine, the current one first."""
    yield sys.executable
    for minor in range(12, 15):
        if path := shutil.which(f"python3.{minor}"):
            yield path
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    yield from (str(python) for python in sorted(versions.glob("3.*/bin/python")))


def _version_of(python: str) -> tuple[int, int]:
    code = "import sys; print(*sys.version_info[:2])"
    try:
        major, minor = _output([python, "-c", code]).split()
    except (NotAvailable, ValueError):
        return (0, 0)
    return int(major), int(minor)


def _output(command: Sequence[str]) -> str:
    return _run(command, _LOOK_SECONDS).strip()


def _run(command: Sequence[str], seconds: float = _INSTALL_SECONDS) -> str:
    """Run a program and return its output; raises NotAvailable with its last line."""
    try:
        done = subprocess.run(  # noqa: S603 - constant programs
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=True,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.CalledProcessError as error:
        lines = str(error.stdout).strip().splitlines()
        raise NotAvailable(lines[-1] if lines else f"exit code {error.returncode}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAvailable(str(error)) from error
    return done.stdout
