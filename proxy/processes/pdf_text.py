"""Extracts the text of a PDF in a separate process, because clients' files may be malicious.

The process runs this module (`python -m proxy.processes.pdf_text < file.pdf`).
"""

import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from io import BytesIO

import msgspec

from proxy.errors import InvalidRequest

# The limits of a PDF, its text, and the time of reading it.
MOST_BYTES = 32 * 2**20
MOST_PAGES = 200
MOST_CHARACTERS = 1_000_000
MOST_SECONDS = 20.0
_MOST_MEMORY = 2**30  # bytes: a small PDF may unpack to gigabytes

_MISSING = (
    "capability_rejected: document_block (to read PDFs this server needs the extra `documents`: "
    "pip install 'temper-proxy[documents]'; or send the text of the PDF)"
)
_UNREADABLE = (
    "capability_rejected: document_block (the PDF cannot be read: {reason}; send its text)"
)


class PdfText(msgspec.Struct, frozen=True):
    """The text of a PDF that has `pages` pages, of which the first `read` were read."""

    text: str
    read: int
    pages: int

    @property
    def marked(self) -> str:
        """The text for the prompt; its first line says that it is from a PDF."""
        if not self.text.strip():
            return f"[A PDF of {self.pages} pages without text: they may be scanned images.]"
        part = "" if self.read == self.pages else f"the first {self.read} of "
        return f"[The text of {part}{self.pages} pages of a PDF:]\n{self.text}"


def read_pdf(data: bytes) -> PdfText:
    """Extract the text of a PDF; raises `InvalidRequest` with the reason if that fails."""
    if find_spec("pypdf") is None:
        raise InvalidRequest(_MISSING)
    if len(data) > MOST_BYTES:
        raise _refuse(f"it is larger than {MOST_BYTES // 2**20} MB")
    command = [sys.executable, "-m", __name__]
    try:
        ended = subprocess.run(  # noqa: S603 - our own module
            command, input=data, capture_output=True, timeout=MOST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise _refuse(f"reading it takes longer than {MOST_SECONDS:g} s") from None
    try:
        return msgspec.json.decode(ended.stdout, type=PdfText)
    except msgspec.DecodeError:
        raise _refuse("it is broken, encrypted or too large when unpacked") from None


def _refuse(reason: str) -> InvalidRequest:
    return InvalidRequest(_UNREADABLE.format(reason=reason))


def extract(data: bytes) -> PdfText:
    """Extract the text page by page, up to the limits above; raises the errors of pypdf."""
    from pypdf import PdfReader

    reader = PdfReader(BytesIO(data))
    texts: list[str] = []
    pages = len(reader.pages)
    for page in reader.pages[:MOST_PAGES]:
        texts.append(page.extract_text())
        if sum(map(len, texts)) > MOST_CHARACTERS:
            break
    return PdfText("\n\n".join(texts)[:MOST_CHARACTERS], len(texts), pages)


def _limit_memory() -> None:
    with suppress(ImportError, ValueError, OSError):  # not on Windows, and macOS ignores the limit
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))


if __name__ == "__main__":
    _limit_memory()
    text = extract(sys.stdin.buffer.read())
    sys.stdout.buffer.write(msgspec.json.encode(text))
