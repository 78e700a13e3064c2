"""The install script with a local server, and the files that packages.py adds to a release."""

import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.release.conftest import REPOSITORY, VERSION, run
from tests.timeouts import TIMEOUT_SECONDS

FOLDER = REPOSITORY / "deploy/install"
SOURCE = "https://forge.example/somebody/temper"
NAME = "temper-linux-x86_64"
PROGRAM = f"#!/bin/sh\necho temper {VERSION}\n"
# the programs that the script uses; tests add curl, wget and uname
TOOLS = (
    *("awk", "cat", "chmod", "cp", "cut", "dirname", "grep", "mkdir", "mktemp", "mv", "rm"),
    *("sh", "sha256sum", "shasum", "tail", "tr"),
)
SHELLS = [shell for shell in ("dash", "bash", "sh", "busybox") if shutil.which(shell)]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the script is for POSIX shells")


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@dataclass
class Release:
    """A release on a local server, and a machine on which it is installed."""

    files: Path
    url: str
    home: Path
    tools: Path
    environment: dict[str, str] = field(default_factory=dict)

    def offer(self, *programs: str, text: str = PROGRAM) -> None:
        for name in programs:
            (self.files / name).write_text(text, encoding="utf-8")
        run(
            sys.executable,
            FOLDER / "packages.py",
            self.files,
            "--version",
            VERSION,
            "--source",
            SOURCE,
        )

    def have(self, name: str, output: str) -> None:
        """Put a program on the PATH that prints `output`."""
        program = self.tools / name
        program.unlink(missing_ok=True)
        program.write_text(f"#!/bin/sh\n{output}\n", encoding="utf-8")
        program.chmod(0o755)

    def link(self, *names: str) -> None:
        for name in names:
            if program := shutil.which(name):
                (self.tools / name).symlink_to(program)

    def install(self, *arguments: str, shell: str = "sh") -> subprocess.CompletedProcess[str]:
        program = [str(shutil.which(shell)), *(["sh"] if shell == "busybox" else [])]
        return subprocess.run(
            [*program, str(FOLDER / "install.sh"), *arguments],
            env={"HOME": str(self.home), "PATH": str(self.tools), **self.environment},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )

    def refusal(self, *arguments: str) -> str:
        """Run the script, check that it installs nothing, and return the error that it prints."""
        ran = self.install(*arguments)
        assert (ran.returncode, ran.stdout) == (1, "")
        (line,) = ran.stderr.splitlines()
        assert not (self.home / ".local/bin/temper").exists()
        return line


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Release]:
    files, home, tools = (tmp_path / name for name in ("files", "home", "tools"))
    for folder in (files, home, tools):
        folder.mkdir()
    handler = partial(_Handler, directory=str(files))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    made = Release(files, url, home, tools)
    made.link(*TOOLS, "curl")
    made.have("uname", 'case "$1" in -s) echo Linux ;; *) echo x86_64 ;; esac')
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_downloads_and_verifies_and_installs_the_program(
    release: Release, shell: str
) -> None:
    release.offer(NAME)
    ran = release.install("--from", release.url, shell=shell)
    assert (ran.returncode, ran.stderr) == (0, "")
    target = release.home / ".local/bin/temper"
    assert target.read_text(encoding="utf-8") == PROGRAM
    assert os.access(target, os.X_OK)
    installed, removal, hint = ran.stdout.splitlines()
    assert installed == f"Installed temper {VERSION} as {target} (SHA-256 verified)."
    assert removal == f"Remove it with: rm {target}"
    assert hint == f"{target.parent} is not on your PATH; try it: {target} demo"
    assert [path.name for path in target.parent.iterdir()] == ["temper"]


def test_with_wget_and_a_prefix_the_script_replaces_an_older_program(release: Release) -> None:
    (release.tools / "curl").unlink()
    release.link("wget")
    if not (release.tools / "wget").exists():
        pytest.skip("wget is missing")
    release.offer(NAME)
    prefix = release.home / "of mine"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/temper").write_text("old", encoding="utf-8")
    release.environment["PATH"] = f"{release.tools}:{prefix}/bin"
    ran = release.install("--from", f"{release.url}/", "--prefix", str(prefix))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith("Try it: temper demo\n")
    assert (prefix / "bin/temper").read_text(encoding="utf-8") == PROGRAM


@pytest.mark.parametrize(
    ("system", "name"),
    [
        ("Linux arm64", "temper-linux-aarch64"),
        ("Darwin arm64", "temper-macos-arm64"),
        ("Linux x86_64", NAME),
    ],
)
def test_the_download_address_depends_on_the_version_and_the_machine(
    release: Release, system: str, name: str
) -> None:
    kernel, machine = system.split()
    release.have("uname", f'case "$1" in -s) echo {kernel} ;; *) echo {machine} ;; esac')
    release.environment["TEMPER_RELEASES"] = f"{SOURCE}/releases"
    for arguments, folder in ((), "latest/download"), (("--version", "v1.2.3"), "download/v1.2.3"):
        shown = release.install(*arguments, "--dry-run").stdout.splitlines()
        assert shown == [
            f"Would download {SOURCE}/releases/{folder}/{name}",
            f"Would verify it by {SOURCE}/releases/{folder}/checksums.txt (SHA-256)",
            f"Would install it as {release.home}/.local/bin/temper",
        ]
    assert [*release.home.iterdir()] == []


def test_an_unsupported_machine_is_refused(release: Release) -> None:
    release.have("uname", 'case "$1" in -s) echo Haiku ;; *) echo riscv64 ;; esac')
    assert "no single-file program for Haiku on riscv64; install it with pip" in release.refusal()


def test_a_system_with_musl_is_refused(release: Release) -> None:
    release.have("ldd", "echo 'musl libc (x86_64)' >&2; exit 1")
    assert "needs glibc, and this system has musl" in release.refusal()


def test_missing_programs_are_named(release: Release) -> None:
    (release.tools / "curl").unlink()
    assert "Neither curl nor wget was found" in release.refusal("--from", release.url)
    release.link("curl")
    for name in ("sha256sum", "shasum"):
        (release.tools / name).unlink(missing_ok=True)
    assert "No program for SHA-256 was found" in release.refusal("--from", release.url)


def test_a_wrong_checksum_installs_nothing(release: Release) -> None:
    release.offer(NAME)
    (release.files / NAME).write_text("#!/bin/sh\necho other\n", encoding="utf-8")
    problem = release.refusal("--from", release.url)
    assert f"The checksum of {NAME} is wrong" in problem
    assert "nothing was installed" in problem


def test_a_release_without_the_program_is_refused(release: Release) -> None:
    assert f"Cannot download {release.url}/checksums.txt: " in release.refusal(
        "--from", release.url
    )
    release.offer("temper-macos-arm64")
    (release.files / NAME).write_text(PROGRAM, encoding="utf-8")
    assert f"The release has no {NAME}" in release.refusal("--from", release.url)


def test_a_program_that_does_not_start_is_not_installed(release: Release) -> None:
    release.offer(NAME, text="#!/bin/sh\nexit 1\n")
    assert "does not start on this machine" in release.refusal("--from", release.url)


def test_a_folder_without_permission_is_refused(release: Release) -> None:
    release.offer(NAME)
    occupied = release.home / "file"
    occupied.write_text("", encoding="utf-8")
    for prefix in (str(occupied), "/proc/none"):  # not even root can write there
        problem = release.refusal("--from", release.url, "--prefix", prefix)
        assert f"no permission to write to {prefix}/bin" in problem


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--prefix",), "--prefix needs a value."),
        (("--fast",), "Unknown option --fast; see install.sh --help."),
        ((), "has no download address"),
    ],
)
def test_wrong_options_are_refused(
    release: Release, arguments: tuple[str, ...], problem: str
) -> None:
    assert problem in release.refusal(*arguments)


def test_help_is_shown(release: Release) -> None:
    ran = release.install("--help")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "--dry-run" in ran.stdout


def test_a_release_has_checksums_and_a_script_with_its_address(release: Release) -> None:
    release.offer(NAME, "temper-macos-arm64")
    if shutil.which("sha256sum"):
        run("sha256sum", "--check", "checksums.txt", cwd=release.files)
    script = (release.files / "install.sh").read_text(encoding="utf-8")
    assert f'releases="${{TEMPER_RELEASES:-{SOURCE}/releases}}"' in script
    assert not [*release.files.glob("*.yaml")]  # there is no program for Windows
    before = {path.name: path.read_bytes() for path in release.files.iterdir()}
    release.offer()
    after = {path.name: path.read_bytes() for path in release.files.iterdir()}
    assert {name for name in after if after[name] != before[name]} == {"checksums.txt"}


def test_the_formula_has_the_programs_of_the_release(release: Release) -> None:
    release.offer(NAME, "temper-macos-arm64")
    path = release.files / "temper.rb"
    formula = path.read_text(encoding="utf-8")
    for name in (NAME, "temper-macos-arm64"):
        assert f'url "{SOURCE}/releases/download/v{VERSION}/{name}"' in formula
    assert formula.count("sha256 ") == 2
    description = formula.partition('desc "')[2].partition('"')[0]
    assert len(description) <= 80
    assert description[0] == "O"
    assert "$" not in formula
    words = formula.split()
    opened = sum(words.count(word) for word in ("class", "do", "def"))
    assert opened == words.count("end")


def test_ruby_accepts_the_formula(release: Release) -> None:
    ruby = shutil.which("ruby")
    if ruby is None:
        pytest.skip("ruby is missing")
    release.offer(NAME)
    assert "Syntax OK" in run(ruby, "-c", release.files / "temper.rb")


def test_the_winget_manifests_are_complete(release: Release) -> None:
    release.offer(NAME, "temper-windows-x86_64.exe")
    manifests = {
        str(manifest["ManifestType"]): manifest
        for path in release.files.glob("TemperProxy.Temper*.yaml")
        if isinstance(manifest := yaml.safe_load(path.read_text(encoding="utf-8")), dict)
    }
    # the required members of the published schemas
    required = {
        "version": {"DefaultLocale"},
        "installer": {"Installers"},
        "defaultLocale": {
            *("PackageLocale", "Publisher", "PackageName", "License", "ShortDescription")
        },
    }
    assert manifests.keys() == required.keys()
    for kind, members in required.items():
        assert members <= manifests[kind].keys()
        assert manifests[kind]["PackageIdentifier"] == "TemperProxy.Temper"
        assert manifests[kind]["PackageVersion"] == VERSION
        assert manifests[kind]["ManifestVersion"] == "1.10.0"
    (installer,) = manifests["installer"]["Installers"]
    assert installer["InstallerUrl"].endswith(f"/v{VERSION}/temper-windows-x86_64.exe")
    assert len(installer["InstallerSha256"]) == 64
    assert installer["InstallerSha256"] == installer["InstallerSha256"].upper()
    assert len(manifests["defaultLocale"]["ShortDescription"]) <= 256


def test_a_release_without_a_program_is_an_error(release: Release) -> None:
    command = [sys.executable, str(FOLDER / "packages.py"), str(release.files)]
    ran = subprocess.run(
        [*command, "--version", VERSION, "--source", SOURCE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "has no program: expected temper-linux-x86_64" in ran.stderr
