"""Pages for readers that show figures.

A page has a mark where they begin, `<!-- figures: NAME -->`, and `<!-- end of figures -->` behind
them; what stands between is renewed.
"""

import re
from collections.abc import Mapping

_MARKED = re.compile(r"(<!-- figures: (\w+) -->\n).*?(\n<!-- end of figures -->)", re.DOTALL)


def renew(page: str, figures: Mapping[str, str]) -> str:
    """Return a page with these figures at its marks; others keep what they have.

    Raises ValueError if none of them has a mark.
    """
    if not any(name in figures for _, name, _ in _MARKED.findall(page)):
        expected = " or ".join(f"<!-- figures: {name} -->" for name in figures)
        raise ValueError(f"there is no mark {expected}")

    def written(match: re.Match[str]) -> str:
        text = figures.get(match[2])
        return match[0] if text is None else f"{match[1]}\n{text}{match[3]}"

    return _MARKED.sub(written, page)
