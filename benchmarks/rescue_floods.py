"""How long the scanner takes for a megabyte of each of twelve hostile patterns.

Run as `python -m benchmarks.rescue_floods`; prints the time for one megabyte and how it grows
when the text is twice as long.
"""

import sys
import time

from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.scanner import Scanner

MEGABYTE = 1_000_000
PIECE = 4_096
FLOODS: dict[str, str | tuple[str, str]] = {
    "braces": "{",
    "brackets": "[",
    "angles": "<",
    "quotation marks": '"',
    "backslashes": "\\",
    "white space": " \n",
    "prose": "word ",
    "code fences": "```\n",
    "opening tags": "<tool_call>",
    "an endless string": ('<tool_call>{"name":"look","arguments":{"at":"', "x"),
    "an endless parameter": ("<function=look><parameter=at>", "<"),
    "tokens": "<|im_end|>",
}


def text_of(flood: str | tuple[str, str], size: int) -> str:
    """Return `size` characters of a flood: a unit repeated, or a beginning and such a unit."""
    start, unit = flood if isinstance(flood, tuple) else ("", flood)
    return (start + unit * (size // len(unit)))[:size]


def seconds_for(text: str) -> float:
    """Scan a text that arrives in pieces."""
    start = time.perf_counter()
    scanner = Scanner(SYNTAXES, ("look",))
    for place in range(0, len(text), PIECE):
        scanner.feed(text[place : place + PIECE])
    scanner.finish()
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    sys.stdout.write(f"{'flood':24s}{'ms per MB':>12s}{'t(2n)/t(n)':>12s}\n")
    for name, flood in FLOODS.items():
        one = min(seconds_for(text_of(flood, MEGABYTE)) for _ in range(3))
        two = min(seconds_for(text_of(flood, 2 * MEGABYTE)) for _ in range(3))
        sys.stdout.write(f"{name:24s}{1000 * one:12.1f}{two / one:12.2f}\n")


if __name__ == "__main__":
    main()
