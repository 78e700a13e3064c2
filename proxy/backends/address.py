"""Parses the address of a backend as an operator wrote it."""

import httpx

from proxy.errors import InvalidConfiguration

SETTING = "backend.url"


def root_of(url: str) -> str:
    """Return a base URL with its scheme but without a trailing slash and `/v1`.

    Raises InvalidConfiguration for an invalid address, or one with credentials: addresses appear
    in headers and logs.
    """
    written = url.strip()
    try:
        parsed = httpx.URL(written if "://" in written else f"http://{written}")
    except httpx.InvalidURL as error:
        raise InvalidConfiguration(SETTING, "is not a URL") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise InvalidConfiguration(SETTING, "should be an address like http://127.0.0.1:8080")
    if parsed.userinfo:
        raise InvalidConfiguration(SETTING, "must not contain credentials: use backend.api_key")
    if parsed.query or parsed.fragment:
        raise InvalidConfiguration(SETTING, "must not have a query or a fragment")
    return str(parsed).rstrip("/").removesuffix("/v1").rstrip("/")
