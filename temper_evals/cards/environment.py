"""The model, the engine and the machine of an evaluation, as far as a card may show them.

The records of an evaluation have a file `environments.json`, which lists the environments in which
the runs of each setup were made, because they cannot be determined later.

    {"qwen3-8b-q4": [{"model": {...}, "engine": {...}, "hardware": {...}}], ...}
"""

import hashlib
import math
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

import httpx
from pydantic import TypeAdapter, ValidationError

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.lenient_json import as_object, as_text
from proxy.errors import InvalidConfiguration, TemperError
from proxy.hardware.fit import GIB, Memory
from proxy.hardware.snapshot import detect_hardware
from proxy.processes.launch import LaunchPlan
from proxy.processes.model_caches import quantisation_of, whole_stem
from proxy.processes.model_file import UNREADABLE, parts_of, read_header
from proxy.serving.managed_server import memory_for
from proxy.settings import Settings, is_loopback
from temper_evals.cards.card import (
    MOST_GPUS,
    Architecture,
    Engine,
    EngineName,
    Environment,
    Gpu,
    Hardware,
    Model,
    PowerOfTwo,
    Processor,
    System,
)
from temper_evals.endpoints import look_up
from temper_evals.loop import ModelTarget

ENVIRONMENTS = "environments.json"

_SECONDS = 10.0
_POWERS: tuple[PowerOfTwo, ...] = get_args(PowerOfTwo)
_ENGINES: tuple[EngineName, ...] = get_args(EngineName)
_SYSTEMS: Mapping[str, System] = {"Linux": "Linux", "Darwin": "macOS", "Windows": "Windows"}
_ARCHITECTURES: Mapping[str, Architecture] = {
    **dict.fromkeys(("x86_64", "amd64"), "x86_64"),
    **dict.fromkeys(("arm64", "aarch64"), "arm64"),
}
# word in /proc/cpuinfo, or in the name of the processor on Windows -> vendor
_PROCESSORS: Mapping[str, Processor] = {"AMD": "AMD", "Intel": "Intel", "Apple": "Apple"}
_UNNAMED = "unnamed"
# as in "b11669-2f0a35c", "0.32.0+cu129" and "0.11.0rc1.dev12+g1234567"
_BUILD = re.compile(
    r"b[1-9]\d{0,5}(?:-[0-9a-f]{7,12})?|\d{1,4}(?:\.\d{1,6}){1,2}(?:(?:a|b|rc)\d+)?"
)
_EMBEDDED: Literal["xllamacpp"] = "xllamacpp"
# llama-server writes "Q4_K - Medium", "IQ2_XXS - 2.0625 bpw", "MXFP4 MoE", "all F32"
_SIZES = {"Small": "_S", "Medium": "_M", "Large": "_L"}
_FILE_TYPE = "general.file_type"

_ADAPTER = TypeAdapter(dict[str, list[Environment]])


def note_environment(folder: Path, setup: str, environment: Environment) -> None:
    """Add an environment to the list of a setup in `folder`, unless the list contains it."""
    known = read_environments(folder)
    listed = known.setdefault(setup, [])
    if environment not in listed:
        listed.append(environment)
        (folder / ENVIRONMENTS).write_bytes(_ADAPTER.dump_json(known, indent=2) + b"\n")


def read_environments(folder: Path) -> dict[str, list[Environment]]:
    """Return the environments of each setup; raises InvalidConfiguration for a damaged file."""
    path = folder / ENVIRONMENTS
    try:
        return _ADAPTER.validate_json(path.read_bytes()) if path.exists() else {}
    except (OSError, ValidationError) as error:
        problem = "cannot be read: run the evaluation again in a new folder"
        raise InvalidConfiguration(str(path), problem) from error


def only_environment(environments: Sequence[Environment], folder: Path) -> Environment:
    """Return the environment of all runs in a folder; raises InvalidConfiguration."""
    if len(environments) != 1:
        made = "in several environments" if environments else "before environments were recorded"
        problem = f"the runs in {folder} were made {made}: run the evaluation in a new folder"
        raise InvalidConfiguration("--card", problem)
    return environments[0]


def simulated_environment(setup: str) -> Environment:
    """Describe a simulated model, such as `p-small@over_acting=0.1`."""
    return Environment(model=Model(name=model_name(setup), simulated=True))


async def served_environment(target: ModelTarget) -> Environment:
    """Describe the model of a server; never raises."""
    engine = await find_engine(target)
    quantization = await _read_quantization(target, engine)
    is_near = is_loopback(urlsplit(target.url).hostname or "")
    return Environment(
        model=Model(name=model_name(target.model), quantization=quantization),
        engine=engine,
        hardware=this_hardware(detect_hardware()) if is_near else None,
    )


def file_environment(model: Path, launch: LaunchPlan, engine: Engine) -> Environment:
    """Describe a model file and the server that `launch` starts for it; never raises."""
    return Environment(
        model=Model(name=model_name(model.name), quantization=quantization_of(model)),
        engine=engine,
        hardware=this_hardware(memory_for(launch.program, detect_hardware())),
    )


def with_digest(environment: Environment, model: Path) -> Environment:
    """Add the digest of the model file; reading it takes a second for 1.5 GB."""
    named = environment.model.model_copy(update={"sha256": sha256_of(model)})
    return environment.model_copy(update={"model": named})


def embedded_engine() -> Engine:
    """Return xllamacpp with the version of its package; its `build_info` is always b0-unknown."""
    try:
        return Engine(name=_EMBEDDED, build=_build_in(version(_EMBEDDED)))
    except PackageNotFoundError:
        return Engine(name=_EMBEDDED)


async def find_engine(target: ModelTarget) -> Engine:
    """Recognize the engine of a server and its build; never raises."""
    try:
        known = await look_up(Settings(), target, "auto")
    except TemperError:
        return Engine(name="other")
    names: Iterator[EngineName] = (name for name in _ENGINES if name == known.engine)
    return Engine(name=next(names, "other"), build=_build_in(known.build))


def _build_in(text: str) -> str | None:
    match = _BUILD.match(text)
    return match[0] if match else None


def model_name(name: str) -> str:
    """Return the last part of a model's name or path, shortened to what a card may show.

    `/home/ada/Qwen3-8B-Q4_K_M.gguf` is "Qwen3-8B-Q4_K_M", `Qwen/Qwen3-8B` is "Qwen3-8B". A name
    that looks like a key or an address is "unnamed".
    """
    last = re.split(r"[/\\]", name.rstrip("/\\"))[-1]
    stem = whole_stem(re.sub(r"\.gguf$", "", last, flags=re.IGNORECASE))
    short = re.sub(r"[^A-Za-z0-9._+:-]+", "-", stem).lstrip("._+:-")[:64]
    try:
        return Model(name=short).name
    except ValidationError:
        return _UNNAMED


async def _read_quantization(target: ModelTarget, engine: Engine) -> str | None:
    """Return the quantization that the server reports, or that the model's name has."""
    level = ""
    if engine.name in ("llama.cpp", _EMBEDDED):
        level = normalized(as_text((await _fetch(target, "/props")).get("model_ftype")))
    elif engine.name == "Ollama":
        listed = (await _fetch(target, "/api/tags")).get("models")
        for entry in map(as_object, listed if isinstance(listed, list) else ()):
            if target.model in (entry.get("name"), f"{entry.get('name')}".removesuffix(":latest")):
                level = as_text(as_object(entry.get("details")).get("quantization_level"))
    return valid_quantization(level) or valid_quantization(quantisation_of(target.model))


def normalized(file_type: str) -> str:
    """Return the usual name of a llama-server's `model_ftype`: "Q4_K - Medium" is Q4_K_M."""
    kind, _, size = file_type.removeprefix("(guessed) ").removeprefix("all ").partition(" - ")
    return kind.replace(" ", "_") + _SIZES.get(size.strip(), "")


def valid_quantization(text: str) -> str | None:
    try:
        return Model(name=_UNNAMED, quantization=text.upper()).quantization
    except ValidationError:
        return None


def quantization_of(path: Path) -> str | None:
    """Return the quantization in the metadata of a GGUF file, or else in its name."""
    name = ""
    try:
        from gguf.constants import LlamaFileType  # in the extra `embedded`

        kind = read_header(path).get(_FILE_TYPE)
        name = LlamaFileType(kind).name if isinstance(kind, int) else ""
    except (ImportError, *UNREADABLE):  # raises ValueError for an unknown type
        pass
    known = name.removeprefix("MOSTLY_").removeprefix("ALL_")
    return valid_quantization(known) or valid_quantization(quantisation_of(path.stem))


async def _fetch(target: ModelTarget, path: str) -> JsonObject:
    """Return a document of a server; empty if there is none."""
    try:
        async with httpx.AsyncClient(timeout=_SECONDS, trust_env=False) as client:
            response = await client.get(f"{target.url}{path}", headers=target.headers)
        return as_object(json.parse(response.content)) if response.is_success else {}
    except (httpx.HTTPError, ValueError):
        return {}


def sha256_of(path: Path) -> str | None:
    """Return the digest of a model file, with all its parts in order; None if one is missing."""
    digest = hashlib.sha256()
    try:
        for part in parts_of(path):
            with part.open("rb") as file:
                hashlib.file_digest(file, lambda: digest)
    except OSError:
        return None
    return digest.hexdigest()


def this_hardware(memory: Memory) -> Hardware:
    """Return the class of this machine; `memory` has the GPUs that the engine can use."""
    architecture = _ARCHITECTURES.get(platform.machine().lower(), "other")
    return Hardware(
        system=_SYSTEMS.get(platform.system(), "other"),
        architecture=architecture,
        processor=processor_in(_processor_text(), architecture),
        cores=power_of_two(os.cpu_count() or 1),
        memory_gib=power_of_two(memory.total / GIB) if memory.total else None,
        gpus=tuple(
            Gpu(name=gpu_name(device.name), memory_gib=power_of_two(device.total / GIB))
            for device in memory.devices[:MOST_GPUS]
        ),
    )


def _processor_text() -> str:
    try:
        return Path("/proc/cpuinfo").read_text("utf-8")
    except (OSError, ValueError):
        return f"{platform.processor()} {platform.system()}".replace("Darwin", "Apple")


def processor_in(text: str, architecture: Architecture) -> Processor:
    """Return the vendor that a description of a processor names."""
    if architecture == "arm64":
        return "Apple" if "Apple" in text else "Arm"
    return next((vendor for word, vendor in _PROCESSORS.items() if word in text), "other")


def power_of_two(value: float) -> PowerOfTwo:
    """Round to the nearest power of two: 23.5 GiB and 31 GiB are 32."""
    return min(_POWERS, key=lambda power: abs(math.log2(power) - math.log2(max(value, 1))))


def gpu_name(name: str) -> str:
    """Return the product name of a GPU, "other" if a card may not show it."""
    words = re.sub(r"[^A-Za-z0-9.+()-]+", " ", name).strip()
    try:
        return Gpu(name=words, memory_gib=1).name
    except ValidationError:
        return "other"
