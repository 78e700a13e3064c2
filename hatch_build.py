"""Hatchling's hook: a wheel and an sdist hold the commit that they were built of."""

import subprocess
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FILE = "proxy/commit.txt"  # in an sdist, too, from which a wheel may be built without git


class CommitHook(BuildHookInterface):  # type: ignore[misc,type-arg]
    """Writes the commit beside the package, in the archive alone."""

    def initialize(self, version: str, build_data: dict[str, dict[str, str]]) -> None:
        root = Path(self.root)
        if version == "editable" or (root / _FILE).exists() or not (root / ".git").exists():
            return
        asked = ["git", "-C", self.root, "rev-parse", "HEAD"]
        try:
            commit = subprocess.check_output(asked, stderr=subprocess.DEVNULL, text=True)  # noqa: S603
        except (OSError, subprocess.CalledProcessError):
            return
        self._folder = tempfile.TemporaryDirectory()  # goes with the builder
        written = Path(self._folder.name) / "commit.txt"
        written.write_text(commit, encoding="ascii")
        build_data["force_include"][str(written)] = _FILE
