"""Hooks of the site: links out of `docs/`, and a copy in Markdown beside each page.

A page links to its copy (`<link rel="alternate" type="text/markdown">`), and `llms.txt` lists the
copies, because a language model reads Markdown better than HTML.
"""

import re
from pathlib import Path

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#]+)(#[^)]*)?\)")
_END_OF_HEAD = "</head>"


def on_page_markdown(markdown: str, *, page: object, **_: object) -> str:
    """Turn links out of `docs/` into their words; tests check that they lead somewhere."""
    depth = str(page.file.src_uri).count("/")  # type: ignore[attr-defined]

    def words(link: re.Match[str]) -> str:
        is_outside = link[2].count("../") > depth
        return link[1] if is_outside else link[0]

    return _OUTSIDE.sub(words, markdown)


def on_post_page(output: str, *, page: object, **_: object) -> str:
    """Write the copy of a page beside its HTML, and link to it."""
    written = Path(str(page.file.abs_dest_path)).with_suffix(".md")  # type: ignore[attr-defined]
    written.parent.mkdir(parents=True, exist_ok=True)
    written.write_text(str(page.markdown), encoding="utf-8")  # type: ignore[attr-defined]
    link = f'<link rel="alternate" type="text/markdown" href="{written.name}">'
    return output.replace(_END_OF_HEAD, link + _END_OF_HEAD, 1)
