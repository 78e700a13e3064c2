"""The Markdown copies of the documentation for language models; .ci/run builds the site."""

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

from tests.release.conftest import REPOSITORY

DOCS = REPOSITORY / "docs"


def test_each_html_page_of_the_site_has_a_markdown_copy(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    file = SimpleNamespace(src_uri="guides/a.md", abs_dest_path=str(tmp_path / "guides/a.html"))
    text = "# A\n[ours](b.md) and [the file](../../LICENSE)\n"
    page = SimpleNamespace(
        file=file, markdown=hooks.on_page_markdown(text, page=SimpleNamespace(file=file))
    )
    html = hooks.on_post_page("<html><head></head></html>", page=page)
    copied = (tmp_path / "guides/a.md").read_text(encoding="utf-8")
    assert copied == "# A\n[ours](b.md) and the file\n"
    assert 'rel="alternate" type="text/markdown" href="a.md"></head>' in html


def test_llms_txt_lists_pages_that_exist() -> None:
    text = (DOCS / "llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"\]\(([^)]+)\)", text)
    assert len(listed) > 15
    assert [page for page in listed if not (DOCS / page).is_file()] == []
    guides = {f"guides/{path.name}" for path in (DOCS / "guides").glob("*.md")}
    unlisted = guides - {*listed}
    assert unlisted <= {
        *("guides/announcements.md", "guides/quoted-calls.md", "guides/models.md"),
        *("guides/kubernetes.md", "guides/dashboard.md", "guides/real-models.md"),
    }
