"""Where a backend is, read from what an operator wrote. It must not know what is asked there."""

from urllib.parse import urlsplit

import httpx

from proxy.errors import InvalidConfiguration

SETTING = "backend.url"
OLLAMA_PORTS = {"http": 80, "https": 443}
OLLAMA_PORT = 11434


def root_of(url: str) -> str:
    """Return a base URL with its scheme but without a trailing slash and `/v1`.

    Raises InvalidConfiguration if nothing can be reached there. Credentials are refused, so that
    the result is fit for headers and logs.
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


def ollama_address(host: str) -> str:
    """Return the URL of an Ollama from what `OLLAMA_HOST` holds; nothing means this machine.

    It is read as Ollama's own client reads it: scheme, port and even the host may be missing, and
    an address to listen on everywhere is reached on this machine.
    """
    scheme, separator, rest = host.strip().strip("'\"").rpartition("://")
    rest = rest.partition("/")[0]
    parsed = urlsplit(f"//{_bracketed(rest)}")
    name = parsed.hostname or "127.0.0.1"
    if name in {"0.0.0.0", "::"}:  # noqa: S104 - nothing listens here
        name = "127.0.0.1" if name == "0.0.0.0" else "::1"  # noqa: S104 - the same
    try:
        port = parsed.port
    except ValueError:
        port = None
    default = OLLAMA_PORTS.get(scheme, OLLAMA_PORT) if separator else OLLAMA_PORT
    written = f"[{name}]" if ":" in name else name
    return f"{scheme or 'http'}://{written}:{default if port is None else port}"


def _bracketed(host: str) -> str:
    """Put brackets around an IPv6 address that has none; then it has no port either."""
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host
