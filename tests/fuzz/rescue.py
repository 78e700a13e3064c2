"""Looks for replies that break their reader, for as long as one likes: needs the extra `fuzz`.

Run as `python -m tests.fuzz.rescue -max_total_time=300`, with any options of libFuzzer. What it
finds is written to a file of this folder or of `-artifact_prefix=`, and told by its error.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import atheris


def main(options: Sequence[str]) -> None:
    """Fuzz, beginning with the replies of the corpus; never returns."""
    with atheris.instrument_imports(include=["proxy"]):
        from tests.fuzz import replies
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        corpus, words = Path(folder, "corpus"), Path(folder, "words")
        corpus.mkdir()
        for number, seed in enumerate(replies.seeds()):
            (corpus / f"{number:05}").write_bytes(bytes([0, number % 256]) + seed.encode())
        words.write_text("".join(map(_entry, replies.dictionary())), encoding="ascii")
        fixed = [f"-dict={words}", f"-max_len={replies.LONGEST}", "-timeout=5", "-only_ascii=0"]
        atheris.Setup([sys.argv[0], *fixed, *options, str(corpus)], replies.fuzz_one)
        atheris.Fuzz()


def _entry(word: str) -> str:
    """Write a line of libFuzzer's dictionary."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in word.encode()) + '"\n'


if __name__ == "__main__":
    main(sys.argv[1:])
