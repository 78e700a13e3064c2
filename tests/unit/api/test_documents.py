from base64 import b64encode

import pytest

from proxy.api import documents
from proxy.api.documents import DocumentTexts
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidRequest
from proxy.processes.pdf_text import PdfText
from tests.fakes.pdf import make_pdf

PDF = b64encode(make_pdf("Hello")).decode()
MARKED = "[The text of 1 pages of a PDF:]\nHello"


@pytest.fixture(autouse=True)
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Replace the child process that reads PDFs; return the PDFs that it would have read."""
    reads: list[bytes] = []

    def read_pdf(data: bytes) -> PdfText:
        reads.append(data)
        if b"broken" in data:
            raise InvalidRequest("it is broken")
        return PdfText("Hello", 1, 1)

    monkeypatch.setattr(documents, "read_pdf", read_pdf)
    return reads


def document(data: str) -> JsonObject:
    source: JsonObject = {"type": "base64", "media_type": "application/pdf", "data": data}
    return {"type": "document", "title": "A", "source": source}


def expand(*content: JsonValue) -> JsonValue:
    body: JsonObject = {"messages": [{"role": "user", "content": [*content]}]}
    document = json.parse(DocumentTexts().expand(json.dump(body)))
    assert isinstance(document, dict)
    return document["messages"][0]["content"][0]  # type: ignore[index, call-overload]


def test_a_pdf_document_of_the_messages_api_becomes_plain_text() -> None:
    source: JsonObject = {"type": "text", "media_type": "text/plain", "data": MARKED}
    assert expand(document(PDF)) == {"type": "document", "title": "A", "source": source}


@pytest.mark.parametrize("head", ["", "data:application/pdf;base64,"])
@pytest.mark.parametrize("name", ["a.pdf", None])
def test_a_pdf_file_of_the_responses_api_becomes_text(head: str, name: str | None) -> None:
    file: JsonObject = {"type": "input_file", "file_data": head + PDF, "filename": name}
    assert expand(file) == {"type": "input_text", "text": f"{name or 'File'}:\n{MARKED}"}


def test_content_without_a_pdf_document_is_unchanged(read: list[bytes]) -> None:
    texts = DocumentTexts()
    for body in (b'{"a": 1.0}', b'JVBERi {"a"', b'{"a":"JVBERi","b":[1,null]}'):
        assert texts.expand(body) == body
    deep: JsonValue = document(PDF)
    for _ in range(20):
        deep = [deep]
    assert json.parse(texts.expand(json.dump(deep))) == deep
    assert read == []


def test_the_texts_of_recent_pdfs_are_cached_and_the_oldest_are_evicted(read: list[bytes]) -> None:
    texts = DocumentTexts()
    for number in (0, *range(40), 0):
        data = b64encode(make_pdf(f"{number}")).decode()
        texts.expand(json.dump([document(data)]))
    assert len(read) == 41


def test_the_error_for_an_unreadable_pdf_names_the_field_of_the_pdf() -> None:
    wrong = [b64encode(b"%PDF broken").decode(), "JVBERi!"]
    for data, message in zip(wrong, ("it is broken", "Expected base64"), strict=True):
        with pytest.raises(InvalidRequest, match=message) as raised:
            expand(document(data))
        assert raised.value.param == "messages.0.content.0.source"
