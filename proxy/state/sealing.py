"""Encrypts what is kept in a shared store: names become digests, bodies ciphertexts.

A secret gives two keys (HKDF-SHA256). A name is the HMAC-SHA256 of its parts. A body is sealed by
AES-256-GCM for its name, so nobody can move it to another name. A body that cannot be opened counts
as missing. No I/O and no randomness: the caller passes the nonce.
"""

import base64
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

NONCE_BYTES = 12
_KEY_BYTES = 32
_VERSION = b"\x01"
_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True)
class SealedPlace:
    """A place in the store that reveals nothing about its purpose."""

    name: str
    _cipher: AESGCM = field(repr=False)

    def seal(self, body: bytes, nonce: bytes) -> bytes:
        """Return what may be kept in this place; a nonce must never be used twice."""
        return _VERSION + nonce + self._cipher.encrypt(nonce, body, self.name.encode())

    def open(self, sealed: bytes) -> bytes | None:
        """Return what was sealed for this place; None if it was not, or with another secret."""
        version, nonce, rest = sealed[:1], sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
        if version != _VERSION or len(nonce) < NONCE_BYTES:
            return None
        try:
            return self._cipher.decrypt(nonce, rest, self.name.encode())
        except InvalidTag:
            return None


class Sealing:
    """Makes places from names; the first of the `secrets` seals, the others only open.

    Every name begins with the `namespace`, which is not hidden.
    """

    def __init__(self, secrets: Sequence[str], namespace: str) -> None:
        self._namespace = namespace
        self._keys = [
            (_derive(secret, b"temper state: names"), AESGCM(_derive(secret, b"temper state")))
            for secret in secrets
        ]

    def places(self, *parts: str) -> tuple[SealedPlace, ...]:
        """Return the place of a name for each of the secrets."""
        return tuple(
            SealedPlace(f"{self._namespace}:{_digest(key, parts)}", cipher)
            for key, cipher in self._keys
        )


def _derive(secret: str, purpose: bytes) -> bytes:
    return HKDF(SHA256(), _KEY_BYTES, salt=None, info=purpose).derive(secret.encode())


def _digest(key: bytes, parts: Sequence[str]) -> str:
    """Hash the parts with their lengths: no two lists of parts share a name."""
    told = [part.encode("utf-8", "surrogateescape") for part in parts]
    whole = b"".join(len(part).to_bytes(_LENGTH_BYTES, "big") + part for part in told)
    return base64.urlsafe_b64encode(hmac.digest(key, whole, "sha256")).decode().rstrip("=")
