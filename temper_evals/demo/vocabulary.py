"""The tokens of a handwritten model: bytes for prompts, triggers, chunks of answers.

`temper_evals.demo.scripted_model` explains how they work together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gguf import TokenType

_CHUNK_LENGTH = 5
DEFAULT = "default"
END_OF_TEXT = "<|endoftext|>"
END_OF_TURN = "<|im_end|>"
_CONTROL = (END_OF_TEXT, "<|im_start|>", END_OF_TURN)
_MARKERS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
MERGES = ("i n", "e r", "t h", "o n")


@dataclass(frozen=True, slots=True)
class TokenScript:
    """An answer as a sequence of tokens; `repeats` if the last token is repeated forever."""

    chunks: tuple[int, ...]
    repeats: bool


@dataclass(slots=True)
class Vocabulary:
    """The tokens in GPT-2's byte-level alphabet, with their kinds and texts."""

    tokens: list[str] = field(default_factory=list)
    kinds: list[TokenType] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)

    def add(self, token: str, kind: TokenType, text: str) -> int:
        self.tokens.append(token)
        self.kinds.append(kind)
        self.texts.add(text)
        return len(self.tokens) - 1

    def number(self, token: str) -> int:
        return self.tokens.index(token)


def cut(pieces: Sequence[str], length: int, used: set[str]) -> list[str]:
    """Join pieces into chunks of at least `length` characters that are not in `used`.

    The chunks are added to `used`. Only the last chunk may be shorter. Raises ValueError if the
    whole text is in `used`.
    """
    chunks: list[str] = []
    chunk = ""
    for piece in pieces:
        chunk += piece
        if len(chunk) >= length and chunk not in used:
            chunks.append(chunk)
            used.add(chunk)
            chunk = ""
    while chunk in used:
        if not chunks:
            raise ValueError(f"the script {chunk!r} is too short to be distinct from another token")
        used.remove(chunks[-1])
        chunk = chunks.pop() + chunk
    if chunk:
        chunks.append(chunk)
        used.add(chunk)
    return chunks


def byte_alphabet() -> dict[int, str]:
    """Map each byte to the printable character that represents it in a token."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {byte: chr(byte) for byte in printable}
    return alphabet | {byte: chr(256 + index) for index, byte in enumerate(others)}


_ALPHABET = byte_alphabet()


def _spell(text: str) -> str:
    return "".join(_ALPHABET[byte] for byte in text.encode())


def basic_vocabulary() -> Vocabulary:
    """Return the tokens that every handwritten model has."""
    vocabulary = Vocabulary()
    for byte in range(256):
        vocabulary.add(_ALPHABET[byte], TokenType.NORMAL, chr(byte) if byte < 128 else "")
    for merge in MERGES:
        pair = merge.replace(" ", "")
        vocabulary.add(pair, TokenType.NORMAL, pair)
    for token in _CONTROL:
        vocabulary.add(token, TokenType.CONTROL, token)
    for token in _MARKERS:
        vocabulary.add(token, TokenType.USER_DEFINED, token)
    vocabulary.texts.discard("")
    return vocabulary


def trigger_token(vocabulary: Vocabulary, trigger: str) -> int:
    """Add the token of a trigger and return its number; a marker already has a token.

    Raises ValueError if the trigger is empty or the text of another token.
    """
    if trigger in _MARKERS:
        return vocabulary.number(trigger)
    if trigger in vocabulary.texts or not trigger:
        raise ValueError(f"{trigger!r} cannot be a trigger")
    return vocabulary.add(trigger, TokenType.USER_DEFINED, trigger)


def write_scripts(
    vocabulary: Vocabulary, scripts: Mapping[str, str | Sequence[str]]
) -> dict[str, TokenScript]:
    """Add the chunks of all scripts as tokens; equal scripts share their tokens."""
    token_scripts: dict[str, TokenScript] = {}
    known: dict[tuple[str, ...], TokenScript] = {}
    for trigger, script in scripts.items():
        pieces = tuple(script)
        if pieces not in known:
            repeats = "".join(pieces).endswith("\0")
            texts = [piece.rstrip("\0") for piece in pieces]
            length = _CHUNK_LENGTH if isinstance(script, str) else 1
            chunks = cut([piece for piece in texts if piece], length, vocabulary.texts)
            tokens = (vocabulary.add(_spell(text), TokenType.NORMAL, text) for text in chunks)
            known[pieces] = TokenScript(tuple(tokens), repeats)
        token_scripts[trigger] = known[pieces]
    return token_scripts
