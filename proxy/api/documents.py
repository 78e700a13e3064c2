"""PDFs in requests, in whose place their text goes on: no engine reads them."""

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

PDF_MARK = b"JVBERi"  # "%PDF" in base 64
_DEEPEST = 12
_MOST_BYTES = 2**15  # of digests, as they are counted there: about 32 documents


@dataclass(slots=True)
class DocumentTexts:
    """Puts text in the place of PDFs; those of the latest documents are kept.

    Clients send the whole conversation each time.
    """

    _kept: KeptByDocument[str] = field(default_factory=lambda: KeptByDocument(most=_MOST_BYTES))

    def expand(self, body: bytes) -> bytes:
        """Return a body without PDFs; raises `InvalidRequest` that names the one it cannot read."""
        if PDF_MARK not in body:
            return body
        try:
            document = json.parse(body)
        except ValueError:  # which the decoder words better
            return body
        return json.dump(self._walk(document, "", _DEEPEST))

    def _walk(self, value: JsonValue, path: str, depth: int) -> JsonValue:
        if not depth:
            return value
        below = f"{path}." if path else ""
        match value:
            case dict():
                return self._find(value, below) or {
                    name: self._walk(one, f"{below}{name}", depth - 1)
                    for name, one in value.items()
                }
            case list():
                return [
                    self._walk(one, f"{below}{place}", depth - 1) for place, one in enumerate(value)
                ]
            case _:
                return value

    def _find(self, value: JsonObject, below: str) -> JsonObject | None:
        """Return what takes the place of a PDF; None for what is none."""
        source, data = as_object(value.get("source")), as_text(value.get("file_data"))
        if value.get("type") == "document" and source.get("media_type") == "application/pdf":
            text = self._read(as_text(source.get("data")), f"{below}source")
            return {**value, "source": {"type": "text", "media_type": "text/plain", "data": text}}
        if value.get("type") == "input_file" and PDF_MARK.decode() in data[:100]:
            text = self._read(data.rpartition(",")[2], f"{below}file_data")
            return {"type": "input_text", "text": f"{value.get('filename') or 'File'}:\n{text}"}
        return None

    def _read(self, encoded: str, path: str) -> str:
        key = hashlib.blake2b(encoded.encode(), digest_size=16).digest()
        if (text := self._kept.find(key)) is not None:
            return text
        try:
            text = read_pdf(b64decode(encoded)).marked
        except NotBase64:
            raise InvalidRequest("Expected base 64.", path) from None
        except InvalidRequest as refusal:
            raise InvalidRequest(refusal.problem, path) from None
        self._kept.keep(key, text)
        return text
