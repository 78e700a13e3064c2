"""Workflows, issue forms and systemd units: their tools validate them; nothing is run."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.release.conftest import MISSING, REPOSITORY, VERSION, run

GITHUB = REPOSITORY / ".github"
SCHEMAS = {
    "vendor.github-workflows": sorted((GITHUB / "workflows").glob("*.yml")),
    "vendor.dependabot": [GITHUB / "dependabot.yml"],
    "vendor.github-issue-forms": [
        GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml" for name in ("bug", "model")
    ],
    "vendor.citation-file-format": [REPOSITORY / "CITATION.cff"],
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_workflow_and_issue_files_match_their_schemas(schema: str) -> None:
    pytest.importorskip("check_jsonschema", reason=MISSING.format("check-jsonschema"))
    files = SCHEMAS[schema]
    assert files
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files)


def test_zizmor_finds_nothing_in_the_workflows() -> None:
    program = Path(sys.executable).with_name("zizmor")
    if not program.exists():
        pytest.skip(MISSING.format("zizmor"))
    run(program, "--offline", "--no-progress", GITHUB)


def test_the_bill_of_materials_lists_the_installed_packages(
    environment: Path, tmp_path: Path
) -> None:
    pytest.importorskip("cyclonedx_py", reason=MISSING.format("cyclonedx-bom"))
    bill = tmp_path / "sbom.json"
    project = ("--pyproject", REPOSITORY / "pyproject.toml", "--output-reproducible", "--validate")
    arguments = ("environment", environment / "bin/python", *project, "-o", bill)
    run(sys.executable, "-m", "cyclonedx_py", *arguments)
    text = bill.read_text(encoding="utf-8")
    assert f'"version": "{VERSION}"' in text
    assert all(f'"name": "{name}"' in text for name in ("temper-proxy", "fastapi", "xllamacpp"))


def test_licenses_of_dependencies_allow_redistribution(environment: Path) -> None:
    program = Path(sys.executable).with_name("pip-licenses")
    if not program.exists():
        pytest.skip(MISSING.format("pip-licenses"))
    listed = run(program, "--python", environment / "bin/python", "--from=mixed", "--format=csv")
    rows = [line for line in listed.splitlines()[1:] if line]
    assert len(rows) > 40
    assert [row for row in rows if "UNKNOWN" in row or "Affero" in row] == []


def test_systemd_analyze_accepts_the_shipped_service_file(tmp_path: Path) -> None:
    unit = (REPOSITORY / "deploy/systemd/temper.service").read_text(encoding="utf-8")
    program = tmp_path / "temper"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    assert "ExecStart=/usr/local/bin/temper serve" in unit
    copied = tmp_path / "temper.service"
    copied.write_text(unit.replace("/usr/local/bin/temper", str(program)), encoding="utf-8")
    try:
        ran = subprocess.run(
            ["systemd-analyze", "verify", str(copied)],  # noqa: S607 - where it is differs
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("systemd is missing; with it the extra `release` is enough")
    assert (ran.returncode, ran.stderr) == (0, "")
