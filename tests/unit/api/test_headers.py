"""Headers by name."""

from starlette.datastructures import Headers
from starlette.types import Scope

from proxy.api.headers import headers_of

SENT = [(b"host", b"here"), (b"x-api-key", b"one"), (b"accept", b"\xe4"), (b"x-api-key", b"two")]


def test_names_mean_what_they_mean_to_starlette() -> None:
    scope: Scope = {"headers": SENT}
    found = headers_of(scope)
    assert dict(found) == {
        name: Headers(scope=scope)[name] for name in ("host", "x-api-key", "accept")
    }


def test_they_are_sorted_out_once() -> None:
    scope: Scope = {"headers": SENT}
    assert headers_of(scope) is headers_of(scope)
