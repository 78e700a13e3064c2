"""Hatchling's hooks: what is built says its commit, and its description links to its source."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_FILE = "proxy/commit.txt"  # in an sdist, too, from which a wheel may be built without git
_IN_A_CHECKOUT = re.compile(r"<!-- only in a checkout -->.*?<!-- end -->\n", re.DOTALL)
_LINK = re.compile(r"(?P<image>!?)\[(?P<words>[^]]*)\]\((?!https?://|#)(?P<target>[^)]+)\)")


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


class DescriptionHook(MetadataHookInterface):
    """Makes the README a page of a package index, where links to files of a checkout are dead."""

    def update(self, metadata: dict[str, object]) -> None:
        # GitHub Actions names both, for a fork as well
        server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
        source = f"{server}/{name}" if server and name else ""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = description(readme, source, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = {"Source": source} if source else {}


def description(readme: str, source: str, tag: str) -> str:
    """Return the README for those without a checkout.

    Links lead to the files of that tag, or are left out where nobody knows its repository.
    """

    def leads(link: re.Match[str]) -> str:
        if not source:
            return "" if link["image"] else link["words"]
        kind = "raw" if link["image"] else "blob"
        return f"{link['image']}[{link['words']}]({source}/{kind}/{tag}/{link['target']})"

    published = _IN_A_CHECKOUT.sub("", readme).replace("install '.[", "install 'temper-proxy[")
    return _LINK.sub(leads, published)
