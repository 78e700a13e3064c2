"""Values of a few tokens for the tiny model's tools; some are held out of its training."""

import random
import tomllib
import zlib
from pathlib import Path

_CONSONANTS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "br", "st", "tr")
_ENDS = ("a", "e", "i", "o", "u", "an", "en", "in", "on", "ar", "er", "or", "al", "el")
_LETTERS = "ABCDEFGHKLMNPRST"
_HELD_OUT_SHARE = 6

DOMAIN = tomllib.loads(Path(__file__).with_name("domain.toml").read_text(encoding="utf-8"))
_LISTS: dict[str, list[str]] = DOMAIN["values"]
_HELD_OUT: dict[str, list[str]] = DOMAIN["held_out"]

# kinds of values that are numbers, and from where to where they go; all others are strings
NUMBERS = {"count": (2, 60), "degrees": (15, 28)}


class ValueDraw:
    """Draws values; `held_out` ones never occur in training, as far as their kind has any."""

    def __init__(self, draw: random.Random, *, held_out: bool = False) -> None:
        self._draw = draw
        self._held_out = held_out

    def value(self, kind: str) -> str | int:
        """Draw a value of a kind, as a tool takes it."""
        if kind in NUMBERS:
            return self._draw.randint(*NUMBERS[kind])
        return self._name(kind) if kind in _HELD_OUT else self._text(kind)

    def word(self) -> str:
        """Make up a word of two syllables."""
        while True:
            word = self._syllable() + self._syllable()
            if is_held_out(word) == self._held_out:
                return word

    def _syllable(self) -> str:
        return self._draw.choice(_CONSONANTS) + self._draw.choice(_ENDS)

    def _name(self, kind: str) -> str:
        """Draw a name that exists, or, as copying is to be learnt, one that does not."""
        if self._draw.random() < 0.5:
            return self.word().capitalize()
        return self._draw.choice((_HELD_OUT if self._held_out else _LISTS)[kind])

    def _text(self, kind: str) -> str:
        draw = self._draw
        match kind:
            case "word":
                return self.word()
            case "path":
                return f"{self.word()}.{draw.choice(_LISTS['ending'])}"
            case "code":
                return f"{draw.choice(_LETTERS)}{draw.randint(10, 99)}"
            case "sentence":
                return f"{draw.choice(_LISTS['subject'])} is {draw.choice(_LISTS['condition'])}"
            case _:
                return draw.choice(_LISTS[kind])


def is_held_out(word: str) -> bool:
    """Return whether a made-up word, or a name put together, is kept from training."""
    return zlib.crc32(word.encode()) % _HELD_OUT_SHARE == 0
