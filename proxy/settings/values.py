"""The kinds of values that settings take: addresses, keys, durations, names."""

import re
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    StringConstraints,
)

from proxy.settings.launch_values import usable_repository


def not_a_truth_value(value: object) -> object:
    """Refuse true and false where a number is due; pydantic would read them as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("should be a number")
    return value


def _none_if_empty(value: object) -> object:
    return None if value == "" else value


def _usable_url(url: str, remedy: str = "use backend.api_key") -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("should be an address like http://127.0.0.1:8080")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"must not contain credentials: {remedy}")
    if parts.query or parts.fragment:
        raise ValueError("must not have a query or a fragment")
    _ = parts.port  # raises ValueError when it is out of range
    return url.rstrip("/")


def _origin(url: str) -> str:
    if not re.fullmatch(r"https?://[^/*?#@\s]+", url):
        raise ValueError("should be an origin like https://chat.example.com, without a path")
    return url


def _usable_key(key: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[!-~]+", key.get_secret_value()):
        raise ValueError("may contain only visible ASCII characters, as it travels in a header")
    return key


# what makes a message, and what Temper sends itself
_OWN_HEADERS = re.compile(
    "accept-encoding|connection|content-(encoding|length|type)|expect|host|keep-alive|"
    "proxy-authenticate|proxy-authorization|te|trace(parent|state)|trailer|transfer-encoding|"
    "upgrade|x-request-id|x-temper-prefix"
)


def _usable_headers(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    """Refuse what would break requests; no message shows a value."""
    for name, value in headers.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            raise ValueError(f"{name!r} is not the name of a header")
        if name.lower() == "authorization":
            raise ValueError("Authorization belongs into api_key")
        if _OWN_HEADERS.fullmatch(name.lower()):
            raise ValueError(f"{name} is set by Temper itself")
        if not re.fullmatch(r"[!-~]([ -~]*[!-~])?", value.get_secret_value()):
            raise ValueError(f"the value of {name} may contain only visible ASCII characters")
    return headers


Headers = Annotated[dict[str, SecretStr], AfterValidator(_usable_headers)]
Origin = Annotated[str, AfterValidator(_origin)]
Count = Annotated[int, BeforeValidator(not_a_truth_value)]
Seconds = Annotated[float, BeforeValidator(not_a_truth_value), Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, BeforeValidator(not_a_truth_value), Field(gt=0, le=1)]
Key = Annotated[
    Annotated[SecretStr, AfterValidator(_usable_key)] | None, BeforeValidator(_none_if_empty)
]
OneUrl = Annotated[str, AfterValidator(_usable_url)]
Url = Annotated[OneUrl | None, BeforeValidator(_none_if_empty)]
Collector = Annotated[
    Annotated[str, AfterValidator(partial(_usable_url, remedy="use OTEL_EXPORTER_OTLP_HEADERS"))]
    | None,
    BeforeValidator(_none_if_empty),
]
File = Annotated[
    Annotated[Path, AfterValidator(Path.expanduser)] | None, BeforeValidator(_none_if_empty)
]
Repository = Annotated[
    Annotated[str, AfterValidator(usable_repository)] | None, BeforeValidator(_none_if_empty)
]
RequiredName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=128)
]
Name = Annotated[RequiredName | None, BeforeValidator(_none_if_empty)]

_UNIT = r"\d+(\.\d+)?(ms|s|m|h)"
Duration = Annotated[str, StringConstraints(pattern=rf"^(-?\d+|({_UNIT})+)?$")]
