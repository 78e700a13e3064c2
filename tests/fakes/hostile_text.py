"""Text that would control a terminal, or forge a line, if it were printed as it is."""

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
    """Report whether anything in a line moves the cursor, reorders text or cannot be seen."""
    return not text.isprintable()
