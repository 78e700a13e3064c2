"""The release artifacts, built once for all tests of this folder; needs the extra `release`."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
VERSION = str(
    tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]["version"]
)
MISSING = "{} is missing: the extra `release` brings it"
EPOCH = {"SOURCE_DATE_EPOCH": "1700000000"}  # fixed timestamps make builds reproducible
# extras in the one-file program
EXTRAS = "embedded,evals,mcp,otel,state"

Build = Callable[[str], Path]


def run(*command: str | Path, cwd: Path = REPOSITORY) -> str:
    """Run a program to its end; its output is shown if it fails."""
    ran = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **EPOCH},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


@dataclass(frozen=True)
class Installed:
    """An installed Temper, and an empty folder, which is its home folder.

    `python` is an interpreter that can import Temper; there is none for the one-file program.
    """

    program: Path
    folder: Path
    python: Path
    surroundings: dict[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> Sequence[str]:
        return (str(self.program), *arguments)


@pytest.fixture(scope="session")
def build_archives(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return a function that builds the sdist, and the wheel from it, into a folder by its name."""
    # not "build": a folder `build` in the repository would be imported as this package
    pytest.importorskip("build.__main__", reason=MISSING.format("build"))
    folder = tmp_path_factory.mktemp("archives")

    def build(name: str) -> Path:
        if not (folder / name).exists():
            run(sys.executable, "-m", "build", "--installer", "uv", "--outdir", folder / name)
        return folder / name

    return build


@pytest.fixture(scope="session")
def wheel(build_archives: Build) -> Path:
    (wheel,) = build_archives("first").glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an empty environment, which has nothing of this checkout."""
    uv = pytest.importorskip("uv", reason=MISSING.format("uv"))
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    requirement = f"{wheel}[{EXTRAS}]"
    run(
        uv.find_uv_bin(),
        "pip",
        "install",
        "--quiet",
        "--python",
        folder / "bin/python",
        requirement,
    )
    return folder


def surroundings(home: Path) -> dict[str, str]:
    """Return environment variables that hide the programs and packages of this machine."""
    return {"HOME": str(home), "PATH": str(home), "LANG": "C.UTF-8"}


@pytest.fixture(scope="session", params=["wheel", "one_file"])
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    home = tmp_path_factory.mktemp("home")
    environment: Path = request.getfixturevalue("environment")
    if request.param == "wheel":
        program, python = environment / "bin/temper", environment / "bin/python"
        return Installed(program, home, python, surroundings(home))
    program = request.getfixturevalue("one_file")
    return Installed(program, home, Path("no python"), surroundings(home))


@pytest.fixture(scope="session")
def one_file(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the one-file program from the installed package."""
    uv = pytest.importorskip("uv", reason=MISSING.format("uv"))
    pytest.importorskip("PyInstaller", reason=MISSING.format("pyinstaller"))
    folder = tmp_path_factory.mktemp("one-file")
    python = environment / "bin/python"
    run(uv.find_uv_bin(), "pip", "install", "--quiet", "--python", python, "pyinstaller")
    places = ("--distpath", folder, "--workpath", folder / "work")
    spec = REPOSITORY / "deploy/one-file/temper.spec"
    run(environment / "bin/pyinstaller", *places, spec, cwd=folder)
    return folder / "temper"
