"""Checks of a request's head that llhttp and uvicorn leave to the server (RFC 9112).

    GET http://127.0.0.1:8000/v1/models HTTP/1.1    an absolute target: its host replaces Host
    Host: 127.0.0.1:8000                            at most one line
    Transfer-Encoding: chunked                      the only coding that Temper reads

A proxy before Temper must read a head in the same way. Otherwise, an attacker could send a head in
which the proxy checks one host or body, and Temper serves another (request smuggling).
"""

import re

from proxy.dialects.dialect import Problem

Headers = list[tuple[bytes, bytes]]

_KIND = "invalid_request_error"
_VERSIONS = frozenset({"1.0", "1.1"})
_HOST = b"host"
_CODING = b"transfer-encoding"
_ABSOLUTE = re.compile(rb"[a-z][a-z0-9+.-]*://([^/?#]*)", re.IGNORECASE)


class RequestRefused(ValueError):
    """A request that must not reach the application; `problem` is the response to it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def check_head(target: bytes, headers: Headers, version: str) -> None:
    """Check a complete head; raises `RequestRefused`.

    The names of `headers` are in lower case. The host of an absolute target replaces the Host
    header, so that access checks use the host that HTTP prescribes.
    """
    if version not in _VERSIONS:
        # llhttp also accepts two other versions, for which it reads headers as in HTTP/1.1:
        # HTTP/2.0, and a request line without a version (HTTP/0.9).
        raise _refusal(505, "Unsupported HTTP version. Send HTTP/1.1 (HTTP/1.0 is also accepted).")
    names = [name for name, _ in headers]
    if _CODING in names:
        _check_coding(headers, version)
    if names.count(_HOST) > 1:  # RFC 9112, 3.2: 400 for more than one line, even if they are equal
        raise _refusal(400, "Send one Host header (got several).")
    if not target.startswith(b"/") and (absolute := _ABSOLUTE.match(target)):
        authority = absolute[1]
        # RFC 9110, 4.2.1 and 4.2.4: a host is required, and user information is an error
        if not authority or b"@" in authority:
            raise _refusal(400, "The request target has no valid host.")
        # RFC 9112, 3.2.2: the server must ignore Host and use the target's host instead
        headers[:] = [*((n, v) for n, v in headers if n != _HOST), (_HOST, authority)]


def _check_coding(headers: Headers, version: str) -> None:
    """Refuse a body with any transfer coding except a single `chunked`."""
    lists = (value for name, value in headers if name == _CODING)
    codings = [coding.strip().lower() for value in lists for coding in value.split(b",")]
    if version == "1.0":  # RFC 9112, 6.1: the framing of such a message is faulty
        raise _refusal(400, "Transfer-Encoding requires HTTP 1.1; send Content-Length instead.")
    if codings == [b"chunked"]:
        return
    if codings[-1] != b"chunked" or codings.count(b"chunked") > 1 or b"" in codings:
        # RFC 9112, 6.3: without a final `chunked`, the length of the body is unknown; 6.1:
        # `chunked` may be applied only once
        raise _refusal(400, "Transfer-Encoding must be chunked.")
    # RFC 9112, 6.1: 501 for a coding that the server does not understand
    raise _refusal(501, "Transfer-Encoding must be chunked; no other coding is supported.")


def _refusal(status: int, message: str) -> RequestRefused:
    return RequestRefused(Problem(status, _KIND, message))
