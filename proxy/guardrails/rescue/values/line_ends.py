"""Which line ends at the marks around a value belong to the value, and which to the layout.

A model that writes values on lines of its own sometimes forgets one of the two line ends. One that
writes them right behind their tags means the line end before the closing tag. Which of them a model
is can be seen from the lines of the value, and from the other values of the call.
"""

from proxy.conversation.json import JsonObject


class LineEnds:
    """The line ends of the values of one call.

    Where the family `has_lines`, it writes values on lines of their own, as a rule.
    """

    def __init__(self, *, has_lines: bool) -> None:
        self._has_lines = has_lines
        self._is_inline = False
        self._shortened: dict[str, str] = {}

    def trimmed(self, key: str, text: str) -> str:
        """Return a value without line ends at its marks and without a closing tag of its name."""
        closing = f"</{key}>"
        if text.rstrip().endswith(closing) and f"<{key}" not in text:
            text = text.rstrip().removesuffix(closing)
        is_apart, is_ended = text[:1] == "\n", text[-1:] == "\n"
        if is_apart and (is_ended or self._has_lines):
            return text[1:].removesuffix("\n")
        self._is_inline |= not is_apart and not is_ended and bool(text)
        body = text[:-1]
        if is_apart or not is_ended or not self._has_lines or "\n" in body:
            return text
        self._shortened[key] = body
        return body

    def restore(self, arguments: JsonObject) -> None:
        """Give line ends back if another value of the call stands right between its marks."""
        for key, body in self._shortened.items():
            if self._is_inline and arguments[key] == body:
                arguments[key] = f"{body}\n"
