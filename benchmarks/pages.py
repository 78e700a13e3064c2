"""Renews the generated figures in a page.

The figures are between the marks `<!-- figures: NAME -->` and `<!-- end of figures -->`.
"""

import re
from collections.abc import Mapping

_MARKED = re.compile(r"(<!-- figures: (\w+) -->\n).*?(\n<!-- end of figures -->)", re.DOTALL)


def renew(page: str, figures: Mapping[str, str]) -> str:
    """Return a page with new figures at its marks; unknown marks keep their text.

    Raises ValueError if no mark matches.
    """
    if not any(name in figures for _, name, _ in _MARKED.findall(page)):
        expected = " or ".join(f"<!-- figures: {name} -->" for name in figures)
        raise ValueError(f"there is no mark {expected}")

    def replacement(match: re.Match[str]) -> str:
        text = figures.get(match[2])
        return match[0] if text is None else f"{match[1]}\n{text}{match[3]}"

    return _MARKED.sub(replacement, page)
