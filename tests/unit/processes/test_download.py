import asyncio
from pathlib import Path

import pytest

from proxy.errors import LaunchFailed
from proxy.processes.download import download
from proxy.processes.launch import embedded_program
from proxy.processes.start_progress import Stage, StartProgress
from tests.fakes.downloading_server import downloading_server
from tests.patience import PATIENCE_SECONDS


async def downloaded(program: Path, repository: str, told: list[StartProgress]) -> Path:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await download((str(program),), repository, told.append)


def test_a_download_tells_how_far_it_is_and_where_the_model_lies(tmp_path: Path) -> None:
    source = tmp_path / "source.gguf"
    source.write_bytes(b"GGUF")
    told: list[StartProgress] = []
    program = downloading_server(tmp_path, source)
    path = asyncio.run(downloaded(program, "owner/name", told))
    assert path == tmp_path / "m.gguf"
    shares = [one.share for one in told if one.stage is Stage.DOWNLOADING]
    assert shares == [0.0, 0.37, 1.0]


def test_one_that_fails_says_why(tmp_path: Path) -> None:
    program = downloading_server(tmp_path, tmp_path / "none")
    with pytest.raises(LaunchFailed, match="could not download the model"):
        asyncio.run(downloaded(program, "nobody/none", []))


def test_the_embedded_server_cannot_download_and_what_can_is_said() -> None:
    with pytest.raises(LaunchFailed) as raised:
        asyncio.run(download(embedded_program(), "owner/name:Q4_K_M", lambda _progress: None))
    said = str(raised.value)
    assert "cannot download owner/name:Q4_K_M" in said
    assert "hf download owner/name --include '*Q4_K_M*.gguf'" in said
    assert "llama-server" in said
