"""Replaces PDFs in requests by their text, because no engine reads PDFs.

A PDF in Anthropic's Messages API, and a PDF in OpenAI's Responses API, with the replacements:

    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": ...}}
    -> {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": ...}}

    {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,..."}
    -> {"type": "input_text", "text": "a.pdf: ..."}
"""

import hashlib
from base64 import b64decode
from binascii import Error as NotBase64
from dataclasses import dataclass, field

from proxy.conversation import json
from proxy.conversation.document_cache import LruCache
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import as_object, as_text
from proxy.errors import InvalidRequest
from proxy.processes.pdf_text import read_pdf

PDF_MARK = b"JVBERi"  # "%PDF" in base64
_DEEPEST = 12  # levels that are searched; a PDF in a tool result is six levels deep
# Enough for about 32 documents: for each, the cache counts 1 KiB and the short key, not the text.
_MOST_BYTES = 2**15


@dataclass(slots=True)
class DocumentTexts:
    """Replaces PDFs by text; caches the texts of the latest documents.

    The cache is useful because clients send the whole conversation with every request.
    """

    _cache: LruCache[str] = field(default_factory=lambda: LruCache(most=_MOST_BYTES))

    def expand(self, body: bytes) -> bytes:
        """Return a body without PDFs; raises `InvalidRequest` for a PDF that cannot be read."""
        if PDF_MARK not in body:
            return body
        try:
            document = json.parse(body)
        except ValueError:  # the dialect's decoder refuses the body with a precise error
            return body
        return json.dump(self._walk(document, "", _DEEPEST))

    def _walk(self, value: JsonValue, path: str, depth: int) -> JsonValue:
        if not depth:
            return value
        prefix = f"{path}." if path else ""
        match value:
            case dict():
                return self._replace(value, prefix) or {
                    name: self._walk(member, f"{prefix}{name}", depth - 1)
                    for name, member in value.items()
                }
            case list():
                return [
                    self._walk(item, f"{prefix}{index}", depth - 1)
                    for index, item in enumerate(value)
                ]
            case _:
                return value

    def _replace(self, value: JsonObject, prefix: str) -> JsonObject | None:
        """Return the text that replaces a PDF, None for any other object.

        The path of a member in errors begins with `prefix`.
        """
        source, data = as_object(value.get("source")), as_text(value.get("file_data"))
        if value.get("type") == "document" and source.get("media_type") == "application/pdf":
            text = self._read(as_text(source.get("data")), f"{prefix}source")
            return {**value, "source": {"type": "text", "media_type": "text/plain", "data": text}}
        if value.get("type") == "input_file" and PDF_MARK.decode() in data[:100]:
            text = self._read(data.rpartition(",")[2], f"{prefix}file_data")
            return {"type": "input_text", "text": f"{value.get('filename') or 'File'}:\n{text}"}
        return None

    def _read(self, encoded: str, path: str) -> str:
        # a digest, because the cache must not keep megabytes of base64 as keys
        key = hashlib.blake2b(encoded.encode(), digest_size=16).digest()
        if (text := self._cache.find(key)) is not None:
            return text
        try:
            text = read_pdf(b64decode(encoded)).marked
        except NotBase64:
            raise InvalidRequest("Expected base64.", path) from None
        except InvalidRequest as refusal:
            raise InvalidRequest(refusal.problem, path) from None
        self._cache.keep(key, text)
        return text
