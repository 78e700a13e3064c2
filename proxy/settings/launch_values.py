"""The kinds of values that settings take which say how a managed server is started."""

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

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
