"""Replaces PDFs in requests by their text, because no engine reads PDFs.

The parts are those of Anthropic's Messages, and of OpenAI's Responses:

    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": ...}}
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": ...}}

    {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,..."}
    {"type": "input_text", "text": "a.pdf: ..."}
"""

import hashlib
from base64 import b64decode
from binascii import Error as NotBase64
from dataclasses import dataclass, field

from proxy.conversation import json
from proxy.conversation.document_cache import KeptByDocument
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import as_object, as_text
from proxy.errors import InvalidRequest
from proxy.processes.pdf_text import read_pdf

PDF_MARK = b"JVBERi"  # "%PDF" in base64
_DEEPEST = 12  # levels, because the walk recurses; a PDF in a tool result is six levels down
_MOST_BYTES = 2**15  # about 32 documents: the cache counts 1 KiB for each, whatever its text


@dataclass(slots=True)
class DocumentTexts:
    """Replaces PDFs by text; caches the latest documents.

    Clients send the whole conversation, with its documents, in every request.
    """

    _kept: KeptByDocument[str] = field(default_factory=lambda: KeptByDocument(most=_MOST_BYTES))

    def expand(self, body: bytes) -> bytes:
        """Return a body without PDFs; raises `InvalidRequest` for a PDF that cannot be read."""
        if PDF_MARK not in body:
            return body
        try:
            document = json.parse(body)
        except ValueError:  # the decoder raises the precise error
            return body
        return json.dump(self._walk(document, "", _DEEPEST))

    def _walk(self, value: JsonValue, path: str, depth: int) -> JsonValue:
        if not depth:
            return value
        below = f"{path}." if path else ""
        match value:
            case dict():
                return self._replace(value, below) or {
                    name: self._walk(member, f"{below}{name}", depth - 1)
                    for name, member in value.items()
                }
            case list():
                return [
                    self._walk(item, f"{below}{index}", depth - 1)
                    for index, item in enumerate(value)
                ]
            case _:
                return value

    def _replace(self, value: JsonObject, below: str) -> JsonObject | None:
        """Return the text part that replaces a PDF part; None for any other object."""
        source, data = as_object(value.get("source")), as_text(value.get("file_data"))
        if value.get("type") == "document" and source.get("media_type") == "application/pdf":
            text = self._read(as_text(source.get("data")), f"{below}source")
            return {**value, "source": {"type": "text", "media_type": "text/plain", "data": text}}
        if value.get("type") == "input_file" and PDF_MARK.decode() in data[:100]:
            text = self._read(data.rpartition(",")[2], f"{below}file_data")
            return {"type": "input_text", "text": f"{value.get('filename') or 'File'}:\n{text}"}
        return None

    def _read(self, encoded: str, path: str) -> str:
        # a digest, because the cache must not keep megabytes of base64 as keys
        key = hashlib.blake2b(encoded.encode(), digest_size=16).digest()
        if (text := self._kept.find(key)) is not None:
            return text
        try:
            text = read_pdf(b64decode(encoded)).marked
        except NotBase64:
            raise InvalidRequest("Expected base64.", path) from None
        except InvalidRequest as refusal:
            raise InvalidRequest(refusal.problem, path) from None
        self._kept.keep(key, text)
        return text
