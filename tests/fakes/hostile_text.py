"""Text that would control a terminal or forge a log line if printed unescaped."""

HOSTILE = (
    "m\x1b[2J\x1b[31mred",
    "m\x1b]0;title\x07",
    "m\nready at http://evil",
    "m\roverwritten",
    "m\u2028next",
    "m\u202etxt.exe",
    "m\x9b2J\x85\x7f",
    "m\x08\x08\x0b\x0c",
    "m\u200b\ufeff\u2066",
)


def has_control(text: str) -> bool:
    """Return whether a line contains cursor movements, bidi marks or invisible characters."""
    return not text.isprintable()
