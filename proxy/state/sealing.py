"""Encrypts the contents of a shared store: names become digests, bodies become ciphertexts.

Two keys are derived from a secret (HKDF-SHA256, RFC 5869). A name is the HMAC-SHA256 of its parts.
A body is encrypted with AES-256-GCM, with its name as associated data, so the body cannot be moved
to another name. A body that cannot be decrypted counts as missing. This module does no I/O and
uses no randomness; the caller passes the nonce.

    name: namespace ":" base64url(HMAC-SHA256)
    body: version (1 byte) nonce (12 bytes) ciphertext and tag
"""

import base64
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

NONCE_BYTES = 12  # of AES-GCM (RFC 5116, 5.2)
_KEY_BYTES = 32  # AES-256
_VERSION = b"\x01"
_LENGTH_BYTES = 8  # of the length before each hashed part


@dataclass(frozen=True, slots=True)
class SealedEntry:
    """An entry of the store; its name reveals nothing about its content."""

    name: str
    _cipher: AESGCM = field(repr=False)

    def seal(self, body: bytes, nonce: bytes) -> bytes:
        """Encrypt a body for this entry; reusing a nonce would break AES-GCM."""
        return _VERSION + nonce + self._cipher.encrypt(nonce, body, self.name.encode())

    def open(self, sealed: bytes) -> bytes | None:
        """Decrypt a body; None if it was sealed for another entry or with another secret."""
        version, nonce = sealed[:1], sealed[1 : 1 + NONCE_BYTES]
        ciphertext = sealed[1 + NONCE_BYTES :]
        if version != _VERSION or len(nonce) < NONCE_BYTES:
            return None
        try:
            return self._cipher.decrypt(nonce, ciphertext, self.name.encode())
        except InvalidTag:
            return None


class Sealing:
    """Creates entries from names; new bodies are encrypted with the first of the `secrets`.

    The other secrets decrypt older bodies after a rotation of the secret. Every name begins with
    the `namespace`, which is not encrypted.
    """

    def __init__(self, secrets: Sequence[str], namespace: str) -> None:
        self._namespace = namespace
        self._keys = [
            (_derive(secret, b"temper state: names"), AESGCM(_derive(secret, b"temper state")))
            for secret in secrets
        ]

    def entries(self, *parts: str) -> tuple[SealedEntry, ...]:
        """Return the entry of a name for each of the secrets."""
        return tuple(
            SealedEntry(f"{self._namespace}:{_digest(key, parts)}", cipher)
            for key, cipher in self._keys
        )


def _derive(secret: str, purpose: bytes) -> bytes:
    # without a salt, because all replicas must derive the same keys (RFC 5869, 3.1)
    return HKDF(SHA256(), _KEY_BYTES, salt=None, info=purpose).derive(secret.encode())


def _digest(key: bytes, parts: Sequence[str]) -> str:
    """Hash the parts with their lengths, so that `("ab", "c")` and `("a", "bc")` differ."""
    encoded = [part.encode("utf-8", "surrogateescape") for part in parts]
    hashed = b"".join(len(part).to_bytes(_LENGTH_BYTES, "big") + part for part in encoded)
    return base64.urlsafe_b64encode(hmac.digest(key, hashed, "sha256")).decode().rstrip("=")
