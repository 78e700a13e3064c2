"""The kinds of values that settings take: addresses, keys, durations, names, server arguments."""

import ipaddress
import re
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    StringConstraints,
    ValidationInfo,
)

# what llama-server is told by Temper itself, and what to do instead of telling it once more
_OWN_ARGUMENTS = {
    "-m --model": "set path",
    "-hf -hfr --hf-repo -hff --hf-file -mu --model-url": "set hf_repo",
    "-hft --hf-token": "set HF_TOKEN in the environment, as everybody can read a command line",
    "-c --ctx-size": "set context_tokens",
    "-np --parallel": "set slots",
    "-a --alias": "set alias",
    "-ngl --gpu-layers --n-gpu-layers": "set gpu_layers",
    "-fa --flash-attn": "set flash_attention",
    "-ctk --cache-type-k": "set cache_type_k",
    "-ctv --cache-type-v": "set cache_type_v",
    "--port": "set port",
    "--host --reuse-port": "only Temper talks to the server, and on this machine",
    "--api-key --api-key-file": "Temper makes a key of its own",
    "--api-prefix --ssl-key-file --ssl-cert-file": "only Temper talks to the server",
    "--no-jinja --no-slots": "Temper needs it",
    "--models-dir --models-preset": "Temper looks after the models itself",
}
_REMEDIES = {flag: remedy for flags, remedy in _OWN_ARGUMENTS.items() for flag in flags.split()}


def _not_our_own(arguments: list[str]) -> list[str]:
    for argument in arguments:
        if remedy := _REMEDIES.get(argument.partition("=")[0]):
            raise ValueError(f"must not hold {argument.partition('=')[0]}: {remedy}")
    return arguments


def _auto_or_a_number(value: object) -> object:
    if value == "auto":
        return value
    try:
        number = int(str(value))
    except ValueError:
        number = -1
    if number < 0 or isinstance(value, bool):
        raise ValueError("should be auto or a number of layers")
    return number


def _with_flash_attention(kind: str, others: ValidationInfo[None]) -> str:
    is_plain = kind in {"f32", "f16", "bf16"}
    if not is_plain and others.data.get("flash_attention") == "off":
        raise ValueError("a quantised V cache needs flash attention: set flash_attention to auto")
    return kind


def usable_repository(name: str) -> str:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+(:[\w.-]+)?", name):
        raise ValueError("should be like owner/name or owner/name:Q4_K_M")
    return name


CacheType: TypeAlias = Literal[
    "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"
]
ValueCacheType = Annotated[CacheType, AfterValidator(_with_flash_attention)]
Layers = Annotated[Literal["auto"] | int, BeforeValidator(_auto_or_a_number)]
Arguments = Annotated[list[str], AfterValidator(_not_our_own)]


def not_a_truth_value(value: object) -> object:
    """Refuse true and false where a number is due; pydantic would read them as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("should be a number")
    return value


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; a name other than localhost may not."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def none_if_empty(value: object) -> object:
    """Let "" say that there is none."""
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


# what a client of MCP sends itself
_OWN_HEADERS_OF_MCP = re.compile(f"{_OWN_HEADERS.pattern}|accept|last-event-id|mcp-.*")


def _usable_tool_server_url(url: str) -> str:
    """Refuse what is no address; a last slash counts for these servers."""
    _usable_url(url, remedy="use headers")
    return url


def _usable_headers(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    if "authorization" in map(str.lower, headers):
        raise ValueError("Authorization belongs into api_key")
    return _sendable(headers, _OWN_HEADERS)


def _usable_tool_server_headers(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    return _sendable(headers, _OWN_HEADERS_OF_MCP)


def _sendable(headers: dict[str, SecretStr], own: re.Pattern[str]) -> dict[str, SecretStr]:
    """Refuse headers that are none or `own`; no message shows a value."""
    for name, value in headers.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            raise ValueError(f"{name!r} is not the name of a header")
        if own.fullmatch(name.lower()):
            raise ValueError(f"{name} is set by Temper itself")
        if not re.fullmatch(r"[!-~]([ -~]*[!-~])?", value.get_secret_value()):
            raise ValueError(f"the value of {name} may contain only visible ASCII characters")
    return headers


def _usable_environment(variables: dict[str, SecretStr]) -> dict[str, SecretStr]:
    """Refuse names that no variable can have, and the end of a text amid a value."""
    for name, value in variables.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"{name!r} is not the name of an environment variable")
        if "\0" in value.get_secret_value():
            raise ValueError(f"the value of {name} must not contain a NUL character")
    return variables


Headers = Annotated[dict[str, SecretStr], AfterValidator(_usable_headers)]
ToolServerHeaders = Annotated[dict[str, SecretStr], AfterValidator(_usable_tool_server_headers)]
Environment = Annotated[dict[str, SecretStr], AfterValidator(_usable_environment)]
Origin = Annotated[str, AfterValidator(_origin)]
Count = Annotated[int, BeforeValidator(not_a_truth_value)]
Seconds = Annotated[float, BeforeValidator(not_a_truth_value), Field(gt=0, allow_inf_nan=False)]
Patience = Annotated[float, BeforeValidator(not_a_truth_value), Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, BeforeValidator(not_a_truth_value), Field(gt=0, le=1)]
Key = Annotated[
    Annotated[SecretStr, AfterValidator(_usable_key)] | None, BeforeValidator(none_if_empty)
]
OneUrl = Annotated[str, AfterValidator(_usable_url)]
Url = Annotated[OneUrl | None, BeforeValidator(none_if_empty)]
ToolServerUrl = Annotated[
    Annotated[str, AfterValidator(_usable_tool_server_url)] | None, BeforeValidator(none_if_empty)
]
Collector = Annotated[
    Annotated[str, AfterValidator(partial(_usable_url, remedy="use OTEL_EXPORTER_OTLP_HEADERS"))]
    | None,
    BeforeValidator(none_if_empty),
]
File = Annotated[
    Annotated[Path, AfterValidator(Path.expanduser)] | None, BeforeValidator(none_if_empty)
]
Repository = Annotated[
    Annotated[str, AfterValidator(usable_repository)] | None, BeforeValidator(none_if_empty)
]
RequiredName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=128)
]
Name = Annotated[RequiredName | None, BeforeValidator(none_if_empty)]

_UNIT = r"\d+(\.\d+)?(ms|s|m|h)"
Duration = Annotated[str, StringConstraints(pattern=rf"^(-?\d+|({_UNIT})+)?$")]
