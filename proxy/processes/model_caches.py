"""Lists downloaded models in the caches of llama.cpp, Hugging Face, Ollama and LM Studio.

The list is made from names, sizes and the first bytes of files. Other programs write into these
folders, so a damaged entry is listed with a `problem`, or skipped.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from proxy.processes.launch import model_file_problem

# Qwen3-8B-UD-Q4_K_XL -> Q4_K_XL
_QUANTISATION = re.compile(
    r"(?:^|[-._])(?:UD-)?((?:IQ|Q|TQ)\d[A-Z0-9_]*|BF16|F16|F32|MXFP4[A-Z0-9_]*)(?=[-.]|$)",
    re.IGNORECASE,
)
_PART = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})$")
_DEEPEST = 6  # levels of folders; the snapshots of Hugging Face are at the fourth level
_MOST_FILES = 10_000  # a cache folder may contain a mounted home folder


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model in the cache of the program `owner`; `problem` says why it cannot be used."""

    owner: str
    name: str
    path: Path
    size: int  # bytes
    quantisation: str = ""
    problem: str = ""


def list_cached_models(
    environment: Mapping[str, str], home: Path, system: str = "linux"
) -> tuple[CachedModel, ...]:
    """List all models in the usual folders; `system` is `sys.platform`."""
    models: dict[Path, CachedModel] = {}
    for owner, folder in _folders(environment, home, system):
        listed = _ollama_models(folder) if owner == "Ollama" else _gguf_files(owner, folder)
        for model in listed:
            models.setdefault(model.path, model)
    return tuple(models.values())


def whole_stem(stem: str) -> str:
    """Return the stem of a file name without its part number: `m-00001-of-00003` becomes `m`."""
    return _PART.sub("", stem)


def quantisation_of(stem: str) -> str:
    """Return the quantization in a file name, such as `Q4_K_M`, or "" if there is none."""
    match = _QUANTISATION.search(stem)
    return match[1].upper() if match is not None else ""


def hub_cache(environment: Mapping[str, str], home: Path) -> Path:
    """Return the folder of Hugging Face's cache."""
    cache = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    hub = Path(environment.get("HF_HOME") or cache / "huggingface") / "hub"
    named = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    return Path(named or hub)


def _folders(environment: Mapping[str, str], home: Path, system: str) -> Iterator[tuple[str, Path]]:
    """Yield each program and its cache folder."""
    cache = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    mac = home / "Library" / "Caches"
    usual = mac if system == "darwin" else cache
    yield "llama.cpp", Path(environment.get("LLAMA_CACHE") or usual / "llama.cpp")
    yield "Hugging Face", hub_cache(environment, home)
    if named := environment.get("OLLAMA_MODELS"):
        yield "Ollama", Path(named)
    else:
        yield "Ollama", home / ".ollama" / "models"
        yield "Ollama", Path("/usr/share/ollama/.ollama/models")
    yield "LM Studio", home / ".lmstudio" / "models"
    yield "LM Studio", home / ".cache" / "lm-studio" / "models"


def _gguf_files(owner: str, folder: Path) -> Iterator[CachedModel]:
    """List the GGUF models in a folder; the parts of a split model are one model."""
    parts: dict[Path, list[CachedModel]] = {}
    for path in _files_in(folder):
        # an image projector (mmproj) is not a model, only a part of a model
        if path.suffix.lower() != ".gguf" or "mmproj" in path.name.lower():
            continue
        path_of_model = path.with_name(whole_stem(path.stem))
        parts.setdefault(path_of_model, []).append(_describe(owner, folder, path))
    yield from map(_join_parts, parts.values())


def _join_parts(parts: list[CachedModel]) -> CachedModel:
    first, match = parts[0], _PART.search(parts[0].path.stem)
    if match is None:
        return first
    size = sum(part.size for part in parts)
    missing = int(match["count"]) - len(parts)
    problem = f"lacks {missing} of its {int(match['count'])} parts" if missing > 0 else ""
    problem = problem or next((part.problem for part in parts if part.problem), "")
    return replace(first, size=size, problem=problem)


def _describe(owner: str, folder: Path, path: Path) -> CachedModel:
    problem = model_file_problem(path)
    quantisation = quantisation_of(whole_stem(path.stem))
    name = _name_of(owner, path.relative_to(folder))
    name = f"{name}:{quantisation}" if "/" in name and quantisation else name
    return CachedModel(owner, name, path, _size(path), quantisation, problem)


def _name_of(owner: str, path: Path) -> str:
    """Return the repository `owner/name` if the path contains it, otherwise the file's name."""
    if owner == "Hugging Face" and path.parts[0].startswith("models--"):
        return path.parts[0].removeprefix("models--").replace("--", "/", 1)
    if owner == "LM Studio" and len(path.parts) > 2:
        return "/".join(path.parts[:2])
    return whole_stem(path.stem)


def _files_in(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder in order, up to a depth and a number of files.

    Links are followed, because Hugging Face's cache consists of links. They may form a cycle, so
    each folder is visited only once.
    """
    visited: set[tuple[int, int]] = set()
    files = 0
    for parent, folders, names in os.walk(folder, followlinks=True):
        try:
            status = Path(parent).stat()
        except OSError:
            folders.clear()
            continue
        depth = len(Path(parent).relative_to(folder).parts)
        is_known = (status.st_dev, status.st_ino) in visited
        may_descend = not is_known and depth < _DEEPEST
        # the blobs of Hugging Face are listed under the names of the links to them
        folders[:] = sorted(name for name in folders if name != "blobs") if may_descend else []
        if is_known:
            continue
        visited.add((status.st_dev, status.st_ino))
        for name in sorted(names):
            files += 1
            if files > _MOST_FILES:
                return
            yield Path(parent) / name


def _ollama_models(folder: Path) -> Iterator[CachedModel]:
    manifests = folder / "manifests"
    for path in _files_in(manifests):
        names = path.relative_to(manifests).parts[1:]  # without the registry
        if len(names) < 2 or path.name.startswith("."):
            continue
        namespace = "" if names[0] == "library" else f"{names[0]}/"
        name = f"{namespace}{'/'.join(names[1:-1])}:{names[-1]}"
        yield from _ollama_model(folder / "blobs", name, _object_in(path))


def _ollama_model(blobs: Path, name: str, manifest: dict[str, object]) -> Iterator[CachedModel]:
    layers = manifest.get("layers")
    for layer in layers if isinstance(layers, list) else ():
        kind = layer.get("mediaType") if isinstance(layer, dict) else None
        if kind == "application/vnd.ollama.image.model":
            path = blobs / _blob(layer)
            config = manifest.get("config")
            content = _object_in(blobs / _blob(config)) if isinstance(config, dict) else {}
            file_type = content.get("file_type")
            quantisation = file_type if isinstance(file_type, str) else ""
            problem = model_file_problem(path)
            yield CachedModel("Ollama", name, path, _size(path), quantisation, problem)
            return


def _blob(layer: dict[str, object]) -> str:
    """Return the file name of a layer's blob; "none" if the digest could lead to another folder."""
    digest = str(layer.get("digest", "")).replace(":", "-")
    return digest if re.fullmatch(r"[\w-]+", digest) else "none"


def _object_in(path: Path) -> dict[str, object]:
    try:
        if path.stat().st_size > 1 << 20:
            return {}
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
