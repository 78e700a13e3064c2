"""Downloads from a fake hub: choice of files, resumption, checksums and failures."""

import asyncio
import errno
import re
import shutil
from pathlib import Path

import pytest

from proxy.errors import DownloadFailed
from proxy.processes import hub
from proxy.processes.hub import HubFile, choose_files, download_from_hub
from proxy.processes.model_caches import list_cached_models
from proxy.processes.start_progress import StartProgress
from tests.fakes.hub import COMMIT, TOKEN, FakeHub, hub_in_thread

CONTENT = b"GGUF" + bytes(range(256)) * 40
NAME = "name-Q4_K_M.gguf"
REPOSITORY = "owner/name:Q4_K_M"


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_PAUSE_SECONDS", 0.0)
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)


def pull(
    fake: FakeHub, home: Path, repository: str = REPOSITORY, **variables: str
) -> tuple[Path, list[StartProgress]]:
    stages: list[StartProgress] = []
    with hub_in_thread(fake) as url:
        environment = {"HF_ENDPOINT": url, **variables}
        path = asyncio.run(download_from_hub(repository, stages.append, environment, home))
    return path, stages


def error_of_pull(fake: FakeHub, home: Path, repository: str = REPOSITORY, **variables: str) -> str:
    with pytest.raises(DownloadFailed) as raised:
        pull(fake, home, repository, **variables)
    return re.sub(r"http://127\.0\.0\.1:\d+", "HUB", str(raised.value))


def test_a_file_in_the_cache_is_not_downloaded_again(tmp_path: Path) -> None:
    fake = FakeHub({NAME: CONTENT, "README.md": b"x"})
    path, stages = pull(fake, tmp_path, HF_TOKEN=TOKEN)
    assert path.read_bytes() == CONTENT
    assert path.parts[-4:] == ("models--owner--name", "snapshots", COMMIT, NAME)
    assert stages[0] == StartProgress(REPOSITORY, "starting")
    assert stages[-1] == StartProgress(REPOSITORY, "downloading", 1.0)
    (cached,) = list_cached_models({}, tmp_path)
    assert (cached.name, cached.path, cached.problem) == (REPOSITORY, path, "")
    assert pull(fake, tmp_path)[0] == path
    assert len(fake.ranges) == 1
    assert fake.tokens == [""]  # the storage server does not receive the token


def test_after_a_broken_connection_the_download_continues_with_a_range_request(
    tmp_path: Path,
) -> None:
    fake = FakeHub({NAME: CONTENT}, breaks_after=[100, 200])
    path, _ = pull(fake, tmp_path)
    assert path.read_bytes() == CONTENT
    assert fake.ranges == ["", "bytes=100-", "bytes=300-"]


def test_the_next_run_of_the_command_continues_an_interrupted_download(tmp_path: Path) -> None:
    fake = FakeHub({NAME: CONTENT}, breaks_after=[len(CONTENT) // 2, *[0] * 5])
    message = error_of_pull(fake, tmp_path)
    assert message.startswith(f"The download of {NAME} was interrupted at 50% (")
    assert message.endswith("Run the same command again to continue.")
    fake.breaks_after.clear()
    path, _ = pull(fake, tmp_path)
    assert path.read_bytes() == CONTENT
    assert fake.ranges[-1] == f"bytes={len(CONTENT) // 2}-"


def test_the_file_is_correct_even_if_its_partial_file_was_complete_or_too_long(
    tmp_path: Path,
) -> None:
    fake = FakeHub({NAME: CONTENT})
    path, _ = pull(fake, tmp_path)
    blob = path.resolve()
    for rest in (b"", b"more"):
        blob.with_name(f"{blob.name}.incomplete").write_bytes(CONTENT + rest)
        blob.unlink()
        assert pull(fake, tmp_path)[0].read_bytes() == CONTENT


def test_a_downloaded_file_with_a_wrong_checksum_is_deleted(tmp_path: Path) -> None:
    fake = FakeHub({NAME: CONTENT}, is_damaged=True)
    assert error_of_pull(fake, tmp_path) == (
        f"{NAME} was damaged during the download (wrong checksum) and deleted. Download it again."
    )
    fake.is_damaged = False
    assert pull(fake, tmp_path)[0].read_bytes() == CONTENT
    assert fake.ranges[-1] == ""


def test_a_gated_repository_is_downloaded_only_with_hf_token(tmp_path: Path) -> None:
    fake = FakeHub({NAME: CONTENT}, is_gated=True)
    assert error_of_pull(fake, tmp_path) == (
        "owner/name is gated: accept its terms at HUB/owner/name, and set HF_TOKEN."
    )
    assert pull(fake, tmp_path, HF_TOKEN=TOKEN)[0].read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("repository", "error", "sentence"),
    [
        (
            "owner/other",
            None,
            "owner/other does not exist at HUB, or is private. Check the name, or set HF_TOKEN.",
        ),
        (
            "owner/name:Q8_0",
            None,
            "owner/name has no file with the quantization Q8_0. Available: Q4_K_M.",
        ),
        (
            "owner/name",
            (503, ""),
            "HUB cannot be used (status 503). Check the network, or set HF_ENDPOINT to a mirror.",
        ),
        (
            "owner/name",
            (403, ""),
            "owner/name is gated: accept its terms at HUB/owner/name, and set HF_TOKEN.",
        ),
    ],
)
def test_the_message_for_an_error_response_of_the_hub_says_what_to_do(
    tmp_path: Path, repository: str, error: tuple[int, str] | None, sentence: str
) -> None:
    assert error_of_pull(FakeHub({NAME: CONTENT}, error=error), tmp_path, repository) == sentence


@pytest.mark.parametrize(
    ("endpoint", "sentence"),
    [
        ("http://127.0.0.1:9", "HUB cannot be used (All connection attempts"),
        ("huggingface", "HF_ENDPOINT must be a URL such as https://huggingface.co (got"),
    ],
)
def test_an_unusable_endpoint_is_named_in_the_error(
    tmp_path: Path, endpoint: str, sentence: str
) -> None:
    assert error_of_pull(FakeHub({}), tmp_path, HF_ENDPOINT=endpoint).startswith(sentence)


def test_the_download_fails_before_it_starts_if_the_disk_space_is_too_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=10))
    fake = FakeHub({NAME: CONTENT})
    message = error_of_pull(fake, tmp_path)
    assert "is full. Make room, or set HF_HOME to a folder on another disk." in message
    assert fake.ranges == []


def test_the_error_says_that_the_disk_filled_up_during_the_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("proxy.processes.hub._Download._append", fail)
    assert "is full. Make room" in error_of_pull(FakeHub({NAME: CONTENT}), tmp_path)


def test_all_parts_of_a_split_model_are_downloaded(tmp_path: Path) -> None:
    parts = {f"big-Q8_0-0000{n}-of-00002.gguf": CONTENT + bytes([n]) for n in (1, 2)}
    path, _ = pull(FakeHub(parts), tmp_path, "owner/name:q8_0")
    assert path.name == "big-Q8_0-00001-of-00002.gguf"
    assert [file.name for file in sorted(path.parent.iterdir())] == [*parts]


@pytest.mark.parametrize(
    ("quantization", "names", "chosen"),
    [
        ("", ["m-Q8_0.gguf", "m-Q4_K_M.gguf"], "m-Q4_K_M.gguf"),
        ("", ["m-Q8_0.gguf", "m-F16.gguf"], "m-Q8_0.gguf"),
        ("", ["m.gguf", "mmproj-m.gguf"], "m.gguf"),
        ("q4_k_m", ["m-UD-Q4_K_M.gguf", "m-Q4_K_M.gguf"], "m-Q4_K_M.gguf"),
        ("UD-Q4_K_XL", ["m-UD-Q4_K_XL.gguf", "m-Q4_K_M.gguf"], "m-UD-Q4_K_XL.gguf"),
    ],
)
def test_choose_files_returns_the_file_with_the_given_or_default_quantization(
    quantization: str, names: list[str], chosen: str
) -> None:
    files = [HubFile(name, 1, "", "b") for name in names]
    assert [file.name for file in choose_files("owner/name", files, quantization)] == [chosen]


def test_a_repository_without_gguf_files_raises_download_failed() -> None:
    with pytest.raises(DownloadFailed, match=r"has no GGUF files\. Look for a repository with"):
        choose_files("owner/name", [HubFile("model.safetensors", 1, "", "b")], "")


def test_hub_files_with_a_path_outside_the_cache_are_ignored(tmp_path: Path) -> None:
    fake = FakeHub({"../evil-Q4_K_M.gguf": CONTENT, "/abs-Q4_K_M.gguf": CONTENT, NAME: CONTENT})
    assert pull(fake, tmp_path)[0].name == NAME
