import pytest

from proxy.errors import InvalidRequest
from proxy.processes import pdf_text
from proxy.processes.pdf_text import PdfText, extract, read_pdf
from tests.fakes.pdf import make_pdf

NEEDED = "needs the extra `documents`"


def test_read_pdf_returns_the_text_of_all_pages() -> None:
    pytest.importorskip("pypdf", reason=NEEDED)
    assert read_pdf(make_pdf("Hello", "there")) == PdfText("Hello\n\nthere", 2, 2)


def test_a_broken_pdf_raises_invalid_request() -> None:
    pytest.importorskip("pypdf", reason=NEEDED)
    with pytest.raises(InvalidRequest, match="it is broken, encrypted or too large"):
        read_pdf(b"%PDF-1.4 broken")


def test_the_pages_characters_bytes_and_time_of_a_pdf_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pypdf", reason=NEEDED)
    monkeypatch.setattr(pdf_text, "MOST_PAGES", 2)
    assert extract(make_pdf("a", "b", "c")) == PdfText("a\n\nb", 2, 3)
    monkeypatch.setattr(pdf_text, "MOST_CHARACTERS", 3)
    assert extract(make_pdf("abcdef", "b")) == PdfText("abc", 1, 2)
    monkeypatch.setattr(pdf_text, "MOST_BYTES", 10)
    with pytest.raises(InvalidRequest, match="larger than"):
        read_pdf(make_pdf("a"))
    monkeypatch.setattr(pdf_text, "MOST_BYTES", 10_000)
    monkeypatch.setattr(pdf_text, "MOST_SECONDS", 0.001)
    with pytest.raises(InvalidRequest, match="takes longer than"):
        read_pdf(make_pdf("a"))


def test_without_pypdf_the_error_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pdf_text, "find_spec", lambda _name: None)
    with pytest.raises(InvalidRequest, match=r"pip install 'temper-proxy\[documents\]'"):
        read_pdf(make_pdf("a"))


@pytest.mark.parametrize(
    ("pdf", "marked"),
    [
        (PdfText("Hi", 2, 2), "[The text of 2 pages of a PDF:]\nHi"),
        (PdfText("Hi", 2, 9), "[The text of the first 2 of 9 pages of a PDF:]\nHi"),
        (PdfText(" ", 2, 2), "[A PDF of 2 pages without text: they may be scanned images.]"),
    ],
)
def test_the_first_line_says_how_many_pages_of_a_pdf_follow(pdf: PdfText, marked: str) -> None:
    assert pdf.marked == marked
