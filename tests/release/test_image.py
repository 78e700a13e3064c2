"""Runs the image, which buildah builds on a local Debian, because no image is pulled here."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from tests.release.conftest import REPOSITORY, run
from tests.timeouts import TIMEOUT_SECONDS

BASE = "docker.io/library/python:3.12-slim"
PACKAGES = "python3,python3-venv,python3-pip,python-is-python3,ca-certificates,binutils"
SERVED = ("temper", "serve", "--backend-url", "http://127.0.0.1:9")
KEY = "sk-of-a-test"
OWN_MEGABYTES = 120  # limit of the size beyond `python:3.12-slim`; the goal for both is 250 MB


@dataclass(frozen=True)
class Container:
    buildah: Sequence[str]
    name: str
    root: Path

    def command(self, *arguments: str, key: str) -> Sequence[str]:
        given = (
            "--network",
            "host",
            "--user",
            "10001:10001",
            "--env",
            f"TEMPER_SERVER__API_KEY={key}",
        )
        return (*self.buildah, "run", *given, self.name, "--", *arguments)


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    missing = [tool for tool in ("buildah", "debootstrap") if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root, buildah and debootstrap beside the extra `release`: {missing}")
    folder = tmp_path_factory.mktemp("image")
    stored = ("--root", str(folder / "stored"), "--runroot", str(folder / "run"))
    buildah = ("buildah", *stored, "--storage-driver", "vfs")
    run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", folder / "base")
    shutil.rmtree(folder / "base/var/cache/apt")
    scratch = run(*buildah, "from", "scratch").split()[-1]
    run(*buildah, "add", "--quiet", scratch, folder / "base", "/")
    run(*buildah, "commit", "--quiet", "--rm", scratch, BASE)
    shutil.rmtree(folder / "base")
    # the certificates that this machine trusts, for downloads
    certificates = ("-v", "/etc/ssl/certs:/etc/ssl/certs:ro")
    built = ("bud", "--isolation", "chroot", "--pull-never", "--network", "host")
    run(*buildah, *built, *certificates, "-t", "temper", REPOSITORY)
    name = run(
        *buildah, "from", "--isolation", "chroot", "--pull-never", "localhost/temper"
    ).split()[-1]
    yield Container(buildah, name, Path(run(*buildah, "mount", name).split()[-1]))
    run(*buildah, "rm", "--all")
    shutil.rmtree(folder)


@contextmanager
def serving(container: Container) -> Iterator[str]:
    """Serve in the container while the block runs; at its end, a SIGTERM stops the server."""
    command = container.command(*SERVED, "--port", "0", "--json", key=KEY)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = str(json.loads(process.stdout.readline())["url"])
        inside = psutil.Process(process.pid).children(recursive=True)
        (temper,) = [
            process for process in inside if process.cmdline()[:1] == ["/opt/temper/bin/python"]
        ]
        user = temper.uids().real
        try:
            yield url.replace("0.0.0.0", "127.0.0.1")
        finally:
            temper.terminate()
            assert process.wait(TIMEOUT_SECONDS) == 0
    assert user == 10001


def test_image_contains_only_what_serving_needs(container: Container) -> None:
    root = container.root / "opt/temper"
    size = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file())
    assert size / 1e6 < OWN_MEGABYTES
    assert [path for path in root.rglob("site-packages/*") if path.name in ("pip", "scipy")] == []


def test_image_refuses_to_serve_without_a_key(container: Container) -> None:
    result = subprocess.run(
        container.command(*SERVED, key=""), capture_output=True, text=True, check=False
    )
    assert result.returncode != 0
    assert "api_key" in result.stderr


def test_image_serves_unprivileged_until_sigterm(container: Container) -> None:
    with (
        serving(container) as url,
        httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS, trust_env=False) as client,
    ):
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/models").status_code == 401
