"""The wheel and the sdist that would be published."""

import hashlib
import json
import re
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.release.conftest import MISSING, REPOSITORY, VERSION, Build, run

PACKAGES = ("proxy", "temper", "temper_evals")


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_two_builds_are_equal_byte_for_byte(build_archives: Build) -> None:
    first = digests(build_archives("first"))
    assert len(first) == 2
    assert first == digests(build_archives("second"))


def test_package_metadata_is_valid(build_archives: Build) -> None:
    pytest.importorskip("twine", reason=MISSING.format("twine"))
    archives = sorted(build_archives("first").iterdir())
    assert run(sys.executable, "-m", "twine", "check", "--strict", *archives).count("PASSED") == 2


SOURCE = "https://forge.example/somebody/temper"
KNOWN = {"GITHUB_SERVER_URL": "https://forge.example", "GITHUB_REPOSITORY": "somebody/temper"}


@pytest.mark.parametrize("known", [KNOWN, dict.fromkeys(KNOWN, "")], ids=["known", "unknown"])
def test_the_description_of_the_package_has_no_relative_links(
    known: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("hatchling", reason=MISSING.format("hatchling"))
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    text = str(json.loads(run(sys.executable, "-m", "hatchling", "metadata"))["readme"]["text"])
    links = re.findall(r"(!?)\[[^]]*\]\(([^)]+)\)", text)
    ours = [link.partition(f"/v{VERSION}/")[2] for _, link in links if link.startswith(SOURCE)]
    assert all(link.startswith("https://") for _, link in links)
    assert [file for file in ours if not (REPOSITORY / file.partition("#")[0]).is_file()] == []
    assert len(ours) > 20 if known is KNOWN else not ours
    assert [link for image, link in links if image and f"{SOURCE}/raw/" not in link] == []
    assert "pip install 'temper-proxy[embedded]' && temper demo" in text
    assert "not on PyPI" not in text


def test_the_wheel_contains_exactly_the_files_of_the_packages(wheel: Path) -> None:
    tracked = run("git", "ls-files", "-co", "--exclude-standard", *PACKAGES, "config").split()
    with zipfile.ZipFile(wheel) as archive:
        held = [name for name in archive.namelist() if ".dist-info/" not in name]
    assert {name.partition("/")[0] for name in held} == {*PACKAGES}
    assert "proxy/commit.txt" in held
    assert len(held) == len([*tracked, "proxy/commit.txt"])
    assert not [name for name in held if "/tests/" in name]


def test_the_sdist_contains_the_tests_and_the_commit(build_archives: Build) -> None:
    (sdist,) = build_archives("first").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"proxy/commit.txt", "LICENSE", "README.md", "CHANGELOG.md", "hatch_build.py"} <= held
    assert {name.partition("/")[0] for name in held} >= {*PACKAGES, "tests", "docs", "config"}
    assert sdist.name == f"temper_proxy-{VERSION}.tar.gz"
