"""Lets the documentation link to files beside it: on the site they are named, and no links."""

import re

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: object, **_: object) -> str:
    """Turn links out of `docs/` into their words; tests check that they lead somewhere."""
    depth = str(page.file.src_uri).count("/")  # type: ignore[attr-defined]

    def words(link: re.Match[str]) -> str:
        is_outside = link[2].count("../") > depth
        return link[1] if is_outside else link[0]

    return _OUTSIDE.sub(words, markdown)
