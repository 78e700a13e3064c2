"""Types of settings with their validators: addresses, keys, durations, names, server arguments."""

import ipaddress
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    StringConstraints,
    ValidationInfo,
)

from proxy import bounds

Value = TypeVar("Value")


def setting(
    default: Value,
    description: str,
    *,
    ge: int | None = None,
    le: int | None = None,
    min_length: int | None = None,
) -> Value:
    """Declare a setting with its default, description and bounds."""
    return Field(default, description=description, ge=ge, le=le, min_length=min_length)


# Arguments that `extra_arguments` must not contain, and the alternative to each. Temper passes them
# to llama-server itself and relies on their values: window, slots, address and key.
_RESERVED_ARGUMENTS = {
    "-m --model": "set path",
    "-hf -hfr --hf-repo -hff --hf-file -mu --model-url": "set hf_repo",
    "-hft --hf-token": "set HF_TOKEN in the environment; other users can read command lines",
    "-c --ctx-size": "set context_tokens",
    "-np --parallel": "set slots",
    "-a --alias": "set alias",
    "-ngl --gpu-layers --n-gpu-layers": "set gpu_layers",
    "-fa --flash-attn": "set flash_attention",
    "-ctk --cache-type-k": "set cache_type_k",
    "-ctv --cache-type-v": "set cache_type_v",
    "--port": "set port",
    "--host --reuse-port": "only Temper connects to this server, on loopback",
    "--api-key --api-key-file": "Temper generates a key",
    "--api-prefix --ssl-key-file --ssl-cert-file": "only Temper connects to this server",
    "--no-jinja --no-slots": "Temper requires Jinja templates and slots",
    "--models-dir --models-preset": "Temper manages the models itself",
}
_REMEDIES = {
    flag: remedy for flags, remedy in _RESERVED_ARGUMENTS.items() for flag in flags.split()
}


def _reject_reserved(arguments: list[str]) -> list[str]:
    for argument in arguments:
        flag = argument.partition("=")[0]
        if remedy := _REMEDIES.get(flag):
            raise ValueError(f"must not contain {flag}: {remedy}")
    return arguments


def _parse_layers(value: object) -> object:
    if value == "auto":
        return value
    if not str(value).strip().isdecimal():
        raise ValueError("should be auto or a number of layers")
    return int(str(value))


def _check_flash_attention(kind: str, info: ValidationInfo[None]) -> str:
    is_plain = kind in {"f32", "f16", "bf16"}
    if not is_plain and info.data.get("flash_attention") == "off":
        raise ValueError(
            "a quantized V cache requires flash attention; set flash_attention to auto"
        )
    return kind


def _matches(pattern: str, problem: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(problem)
        return text

    return check


usable_repository = _matches(
    r"[\w.-]+/[\w.-]+(:[\w.-]+)?", "should be like owner/name or owner/name:Q4_K_M"
)
_usable_origin = _matches(
    r"https?://[^/*?#@\s]+", "should be an origin like https://chat.example.com, without a path"
)


def _usable_key(key: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[!-~]+", key.get_secret_value()):
        raise ValueError(
            "may contain only visible ASCII characters, because it is sent in a header"
        )
    return key


CacheType: TypeAlias = Literal[
    "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"
]
ValueCacheType = Annotated[CacheType, AfterValidator(_check_flash_attention)]
Layers = Annotated[Literal["auto"] | int, BeforeValidator(_parse_layers)]
Arguments = Annotated[list[str], AfterValidator(_reject_reserved)]


def _reject_boolean(value: object) -> object:
    """Reject true and false where a number is expected; pydantic would convert them to 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("should be a number")
    return value


def is_loopback(host: str) -> bool:
    """Return whether an address is loopback; the only host name that counts is localhost.

    Names are not resolved: a name may resolve to another address a moment later.
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _usable_url(url: str, remedy: str = "use backend.api_key") -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("should be an address like http://127.0.0.1:8080")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"must not contain credentials: {remedy}")
    if parts.query or parts.fragment:
        raise ValueError("must not have a query or a fragment")
    _ = parts.port  # raises ValueError when it is out of range
    return url


# headers of message framing, and headers that Temper sets itself
_RESERVED_HEADERS = re.compile(
    "accept-encoding|connection|content-(encoding|length|type)|expect|host|keep-alive|"
    "proxy-authenticate|proxy-authorization|te|trace(parent|state)|trailer|transfer-encoding|"
    "upgrade|x-request-id|x-temper-prefix"
)
# headers that the MCP client sets itself
_RESERVED_MCP_HEADERS = re.compile(f"{_RESERVED_HEADERS.pattern}|accept|last-event-id|mcp-.*")


def _usable_headers(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    if "authorization" in map(str.lower, headers):
        raise ValueError("must not contain Authorization; use api_key")
    return _sendable(headers, _RESERVED_HEADERS)


def _sendable(headers: dict[str, SecretStr], reserved: re.Pattern[str]) -> dict[str, SecretStr]:
    """Reject invalid and `reserved` headers; messages omit the values, which may be secrets."""
    for name, value in headers.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            raise ValueError(f"{name!r} is not the name of a header")
        if reserved.fullmatch(name.lower()):
            raise ValueError(f"{name} is set by Temper itself")
        # a line break in the value would begin another header
        if not re.fullmatch(r"[!-~]([ -~]*[!-~])?", value.get_secret_value()):
            raise ValueError(f"the value of {name} may contain only visible ASCII characters")
    return headers


def _usable_environment(variables: dict[str, SecretStr]) -> dict[str, SecretStr]:
    """Reject names and values with which the operating system cannot start a program."""
    for name, value in variables.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name!r} is not the name of an environment variable")
        if "\0" in value.get_secret_value():
            raise ValueError(f"the value of {name} must not contain a NUL character")
    return variables


_MOST_SECRETS = 2  # the current secret and the previous secret
_SHORTEST_SECRET = 16  # characters
_STATE_SCHEMES = ("valkey", "valkeys", "redis", "rediss", "unix")
_STATE_OPTIONS = {"namespace", "ssl_ca_certs"}


def _usable_state_url(url: SecretStr) -> SecretStr:
    """Reject invalid addresses; messages omit the address, which may contain a password."""
    parts = urlsplit(url.get_secret_value())
    is_socket = parts.scheme == "unix"
    if parts.scheme not in _STATE_SCHEMES or not (parts.path if is_socket else parts.hostname):
        raise ValueError("should be an address like valkey://127.0.0.1:6379, rediss:// or unix://")
    _ = parts.port  # raises ValueError when it is out of range
    if not is_socket and not re.fullmatch(r"/?|/\d+", parts.path):
        raise ValueError(
            "must have no path except a database number, as in redis://127.0.0.1:6379/0"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - _STATE_OPTIONS - ({"db"} if is_socket else set())):
        raise ValueError(
            f"has an unknown option {unknown[0]!r}; valid are namespace and ssl_ca_certs"
        )
    if not re.fullmatch(r"[A-Za-z0-9._:-]{1,64}", options.get("namespace", "temper")):
        raise ValueError("namespace must have 1 to 64 letters, digits and . _ : -")
    return url


def _usable_secrets(secrets: SecretStr) -> SecretStr:
    """Reject secrets that are too short, and more than two secrets."""
    values = secrets.get_secret_value().split()
    if not 1 <= len(values) <= _MOST_SECRETS or min(map(len, values)) < _SHORTEST_SECRET:
        raise ValueError(
            f"should be a secret of at least {_SHORTEST_SECRET} characters, or two separated by a "
            "space: the current secret and the previous secret"
        )
    return secrets


_usable_mcp_headers = partial(_sendable, reserved=_RESERVED_MCP_HEADERS)
Headers = Annotated[dict[str, SecretStr], AfterValidator(_usable_headers)]
ToolServerHeaders = Annotated[dict[str, SecretStr], AfterValidator(_usable_mcp_headers)]
Environment = Annotated[dict[str, SecretStr], AfterValidator(_usable_environment)]
Origin = Annotated[str, AfterValidator(_usable_origin)]

_NUMBER = BeforeValidator(_reject_boolean)
Count = Annotated[int, _NUMBER]
Seconds = Annotated[float, _NUMBER, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, _NUMBER, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, _NUMBER, Field(gt=0, le=1)]

# "" means None, because an environment variable or a Helm value cannot be null
OrNone: TypeAlias = Annotated[
    Value | None, BeforeValidator(lambda value: None if value == "" else value)
]
Key = OrNone[Annotated[SecretStr, AfterValidator(_usable_key)]]
_usable_mcp_url = partial(_usable_url, remedy="use headers")
_usable_collector_url = partial(_usable_url, remedy="use OTEL_EXPORTER_OTLP_HEADERS")
_WITHOUT_SLASH = AfterValidator(lambda url: url.rstrip("/"))
RequiredUrl = Annotated[str, AfterValidator(_usable_url), _WITHOUT_SLASH]
Url = OrNone[RequiredUrl]
# not _WITHOUT_SLASH: an MCP server may distinguish addresses with and without a trailing slash
ToolServerUrl = OrNone[Annotated[str, AfterValidator(_usable_mcp_url)]]
Collector = OrNone[Annotated[str, AfterValidator(_usable_collector_url), _WITHOUT_SLASH]]


def _usable_path(path: Path) -> Path:
    if "\0" in str(path) or any(len(part.encode()) > bounds.NAME_BYTES for part in path.parts):
        raise ValueError(
            f"must not have a part of more than {bounds.NAME_BYTES} bytes, or a NUL character"
        )
    return path.expanduser()


File = OrNone[Annotated[Path, AfterValidator(_usable_path)]]
StateUrl = OrNone[Annotated[SecretStr, AfterValidator(_usable_state_url)]]
Secrets = OrNone[Annotated[SecretStr, AfterValidator(_usable_secrets)]]
Repository = OrNone[Annotated[str, AfterValidator(usable_repository)]]
RequiredName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=128)
]
Name = OrNone[RequiredName]

_UNIT = r"\d+(\.\d+)?(ms|s|m|h)"
Duration = Annotated[str, StringConstraints(pattern=rf"^(-?\d+|({_UNIT})+)?$")]
