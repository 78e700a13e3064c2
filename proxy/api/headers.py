"""The headers of a request by name: parsed once, because they are looked up many times."""

from collections.abc import Mapping

from starlette.types import Scope

_KEPT = "temper.headers"


def headers_of(scope: Scope) -> Mapping[str, str]:
    """Return a request's headers by lower-case name; if one is repeated, the first counts.

    starlette's `Headers` walk through all of them for each name.
    """
    found: Mapping[str, str] | None = scope.get(_KEPT)
    if found is None:
        found = scope[_KEPT] = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in reversed(scope["headers"])
        }
    return found
