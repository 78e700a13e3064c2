"""Downloads a model from a Hugging Face hub for the embedded server, which cannot download.

    GET /api/models/owner/name/revision/main?blobs=true    the commit, and the files with checksums
    GET /owner/name/resolve/COMMIT/FILE                    a file; redirects to a storage server

The files are stored in Hugging Face's cache, where other programs find them as well:

    models--owner--name/blobs/SHA256                       a file
    models--owner--name/blobs/SHA256.incomplete            a file during the download
    models--owner--name/snapshots/COMMIT/FILE              a link to the file

An interrupted download continues where it stopped, also in a later run. Environment variables:
HF_ENDPOINT, HF_TOKEN, and the variables of the cache (`model_caches`).
"""

import asyncio
import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import httpx

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.lenient_json import as_integer, as_list, as_object, as_text
from proxy.errors import DownloadFailed
from proxy.hardware.summary import amount
from proxy.processes.model_caches import hub_cache, quantisation_of, whole_stem
from proxy.processes.start_progress import StageListener, StartProgress

_ENDPOINT = "https://huggingface.co"
_TIMEOUTS = httpx.Timeout(30.0, connect=10.0)  # without data; a download may take hours
_MOST_FAILURES = 5  # successive attempts that download no byte
_PAUSE_SECONDS = 1.0  # after the first failure; doubled after each further failure
_LONGEST_PAUSE = 10.0
_DEFAULT_QUANTIZATIONS = ("Q4_K_M", "Q8_0")  # as in llama-server
_INCOMPLETE = ".incomplete"


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository; `blob` is its name in the cache, `sha256` is "" if unknown."""

    name: str
    size: int
    sha256: str
    blob: str


async def download_from_hub(
    repository: str, on_stage: StageListener, environment: Mapping[str, str], home: Path
) -> Path:
    """Download a model such as `owner/name:Q4_K_M`; return the path of its file.

    For a split model, this is the path of the first part.

    Complete files in the cache are not downloaded again. Raises `DownloadFailed`.
    """
    name, _, quantization = repository.partition(":")
    endpoint = (environment.get("HF_ENDPOINT") or _ENDPOINT).rstrip("/")
    token = environment.get("HF_TOKEN", "")
    on_stage(StartProgress(repository, "starting"))
    headers = {"accept-encoding": "identity"}  # Content-Length must be the size of the file
    if token:  # httpx drops this header when a response redirects to the storage server
        headers["authorization"] = f"Bearer {token}"
    async with httpx.AsyncClient(
        headers=headers, timeout=_TIMEOUTS, follow_redirects=True
    ) as client:
        hub = _Hub(client, endpoint, name, has_token=bool(token))
        commit, files = await hub.look_up()
        model_files = choose_files(name, files, quantization)
        folder = hub_cache(environment, home) / f"models--{name.replace('/', '--')}"
        download = _Download(hub, folder, commit, model_files)
        try:
            return await download.run(lambda share: on_stage(_downloading(repository, share)))
        except OSError as error:
            raise _storage_problem(folder, error) from error


def choose_files(
    repository: str, files: Sequence[HubFile], quantization: str
) -> tuple[HubFile, ...]:
    """Return the files of one model (several files if it is split); raises `DownloadFailed`."""
    models: dict[str, list[HubFile]] = {}
    for file in files:
        path = PurePosixPath(file.name)
        # an image projector (mmproj) is not a model, only a part of a model
        if path.suffix.lower() == ".gguf" and "mmproj" not in path.name.lower():
            models.setdefault(str(path.with_name(whole_stem(path.stem))), []).append(file)
    if not models:
        advice = f"Look for a repository with a name like {repository}-GGUF."
        raise DownloadFailed(f"{repository} has no GGUF files. {advice}")
    # "" matches any quantization
    candidates = [quantization] if quantization else [*_DEFAULT_QUANTIZATIONS, ""]
    for candidate in candidates:
        matches = [stem for stem in models if _matches(stem, candidate)]
        if matches:
            best = min(matches, key=lambda stem: (len(stem), stem))
            return tuple(sorted(models[best], key=lambda file: file.name))
    available = sorted({quantisation_of(PurePosixPath(stem).name) or stem for stem in models})
    problem = f"{repository} has no file with the quantization {quantization}."
    raise DownloadFailed(f"{problem} Available: {', '.join(available)}.")


def _matches(stem: str, quantization: str) -> bool:
    known = quantisation_of(PurePosixPath(stem).name)
    return not quantization or quantization.upper() in (known, f"UD-{known}", stem.upper())


def _downloading(repository: str, share: float) -> StartProgress:
    return StartProgress(repository, "downloading", share)


class _InterruptedError(Exception):
    """A temporary failure, with its reason as the text: the same request may succeed later."""


@dataclass(frozen=True, slots=True)
class _Hub:
    """One repository at an endpoint."""

    client: httpx.AsyncClient
    endpoint: str
    repository: str
    has_token: bool

    async def look_up(self) -> tuple[str, Sequence[HubFile]]:
        """Return the latest commit and its files; raises `DownloadFailed`."""
        path = f"/api/models/{quote(self.repository)}/revision/main"
        try:
            response = await self.client.get(f"{self.endpoint}{path}", params={"blobs": "true"})
            self.check(response)
            model = as_object(json.parse(response.content))
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            problem = f"HF_ENDPOINT must be a URL such as {_ENDPOINT} (got {self.endpoint!r})."
            raise DownloadFailed(problem) from error
        except (httpx.HTTPError, _InterruptedError) as error:
            raise self.unreachable(error) from error
        except ValueError as error:
            raise DownloadFailed(
                f"{self.endpoint} did not respond like a Hugging Face hub. "
                "Check the network, or correct HF_ENDPOINT."
            ) from error
        entries = map(_read_file, map(as_object, as_list(model.get("siblings"))))
        return as_text(model.get("sha")) or "main", [file for file in entries if file is not None]

    def url_of(self, commit: str, file: HubFile) -> str:
        return f"{self.endpoint}/{quote(self.repository)}/resolve/{commit}/{quote(file.name)}"

    def check(self, response: httpx.Response) -> None:
        """Raise `DownloadFailed` or `_InterruptedError` if the response is an error."""
        status, code = response.status_code, response.headers.get("x-error-code", "")
        page = f"{self.endpoint}/{self.repository}"
        # status 416: all bytes of the file were downloaded before; `_append` checks the size
        if response.is_success or status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return
        if code == "GatedRepo" or status == HTTPStatus.FORBIDDEN:
            remedy = "" if self.has_token else ", and set HF_TOKEN"
            raise DownloadFailed(f"{self.repository} is gated: accept its terms at {page}{remedy}.")
        if code == "EntryNotFound":
            raise DownloadFailed(f"{response.url.path} does not exist. See the files at {page}.")
        # the hub does not reveal whether a private repository exists
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND):
            token = "check HF_TOKEN" if self.has_token else "set HF_TOKEN"
            raise DownloadFailed(
                f"{self.repository} does not exist at {self.endpoint}, or is private. "
                f"Check the name, or {token}."
            )
        raise _InterruptedError(f"status {status}")

    def unreachable(self, error: Exception) -> DownloadFailed:
        reason = str(error) or type(error).__name__
        return DownloadFailed(
            f"{self.endpoint} cannot be used ({reason}). "
            "Check the network, or set HF_ENDPOINT to a mirror."
        )


@dataclass(slots=True)
class _Download:
    """The download of some files of a repository into its folder in the cache."""

    hub: _Hub
    folder: Path
    commit: str
    files: Sequence[HubFile]

    async def run(self, on_share: Callable[[float], None]) -> Path:
        total = sum(file.size for file in self.files) or 1
        missing = [file for file in self.files if not self._blob(file).exists()]
        (self.folder / "blobs").mkdir(parents=True, exist_ok=True)
        self._check_space(missing)
        complete = total - sum(file.size for file in missing)  # bytes of the files in the cache
        for file in missing:

            def report(size: int, complete: int = complete) -> None:
                on_share(min(1.0, (complete + size) / total))

            await self._fetch(file, report)
            complete += file.size
        links = [self._link(file) for file in self.files]
        reference = self.folder / "refs" / "main"
        reference.parent.mkdir(exist_ok=True)
        reference.write_text(self.commit, encoding="utf-8")
        return links[0]

    def _blob(self, file: HubFile) -> Path:
        return self.folder / "blobs" / file.blob

    def _partial(self, file: HubFile) -> Path:
        return self.folder / "blobs" / f"{file.blob}{_INCOMPLETE}"

    def _check_space(self, missing: Sequence[HubFile]) -> None:
        needed = sum(max(0, file.size - _size(self._partial(file))) for file in missing)
        if shutil.disk_usage(self.folder).free < needed:
            raise OSError(errno.ENOSPC, amount(needed))

    async def _fetch(self, file: HubFile, on_size: Callable[[int], None]) -> None:
        """Download one file; after an interruption, continue at the first missing byte."""
        partial, failures = self._partial(file), 0
        while True:
            before = _size(partial)
            try:
                await self._append(file, partial, on_size)
                break
            except (httpx.TransportError, _InterruptedError) as error:
                # failures are counted from the last attempt that downloaded at least one byte
                failures = 1 if _size(partial) > before else failures + 1
                if failures == _MOST_FAILURES:
                    raise self._interrupted(file, error) from error
                pause = _PAUSE_SECONDS * 2 ** (failures - 1)
                await asyncio.sleep(min(pause, _LONGEST_PAUSE))
        if file.sha256 and await asyncio.to_thread(_digest, partial) != file.sha256:
            _remove(partial)
            raise DownloadFailed(
                f"{file.name} was damaged during the download (wrong checksum) and deleted. "
                "Download it again."
            )
        partial.replace(self._blob(file))

    async def _append(self, file: HubFile, partial: Path, on_size: Callable[[int], None]) -> None:
        """Download the missing bytes of a file; raises `_InterruptedError` if not all arrive."""
        size = _size(partial)
        headers = {"range": f"bytes={size}-"} if size else {}
        url = self.hub.url_of(self.commit, file)
        async with self.hub.client.stream("GET", url, headers=headers) as response:
            self.hub.check(response)
            if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                if size != file.size:
                    _remove(partial)
                    raise _InterruptedError(
                        "the partial download was longer than the file on the hub"
                    )
                return
            is_partial = response.status_code == HTTPStatus.PARTIAL_CONTENT
            with partial.open("ab" if is_partial else "wb") as output:
                async for piece in response.aiter_bytes():
                    output.write(piece)
                    on_size(output.tell())
        if _size(partial) < file.size:
            raise _InterruptedError("the connection was closed early")

    def _interrupted(self, file: HubFile, error: Exception) -> DownloadFailed:
        share = _size(self._partial(file)) / max(1, file.size)
        reason = str(error) or type(error).__name__
        return DownloadFailed(
            f"The download of {file.name} was interrupted at {share:.0%} ({reason}). "
            "Run the same command again to continue."
        )

    def _link(self, file: HubFile) -> Path:
        """Add a complete file to the snapshot as a link or a copy, and return the new path."""
        path = self.folder / "snapshots" / self.commit / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.unlink(missing_ok=True)  # a broken link
            blob = self._blob(file)
            try:
                path.symlink_to(os.path.relpath(blob, path.parent))
            except OSError:  # Windows allows links only to some users
                shutil.copyfile(blob, path)
        return path


def _read_file(entry: JsonObject) -> HubFile | None:
    """Read the entry of a file; None if its name is not safe as a path."""
    name, lfs = as_text(entry.get("rfilename")), as_object(entry.get("lfs"))
    sha256 = as_text(lfs.get("sha256")) or ""
    blob = sha256 or as_text(entry.get("blobId")) or ""
    if not name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        return None
    if not blob.isalnum() or "\\" in name:
        return None
    return HubFile(name, as_integer(entry.get("size")) or 0, sha256, blob)


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _storage_problem(folder: Path, error: OSError) -> DownloadFailed:
    if error.errno == errno.ENOSPC:
        return DownloadFailed(
            f"The disk of {folder} is full. Make room, or set HF_HOME to a folder on another disk."
        )
    return DownloadFailed(
        f"{folder} cannot be written ({error.strerror}). Set HF_HOME to another folder."
    )
