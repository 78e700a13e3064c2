"""What clients and models wrote, made safe to show: it can neither forge a line nor steer."""


def escaped(text: str) -> str:
    """Show what is invisible: control characters, ANSI and bidi sequences, line separators."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        character
        if character.isprintable() and character != "\\"
        else character.encode("unicode_escape").decode()
        for character in text
    )
