"""Has a llama-server download a model into its cache, and ends it before it is served."""

import asyncio
from pathlib import Path

from proxy.errors import LaunchFailed
from proxy.processes.failures import explain_failure
from proxy.processes.launch import HOST, NAME, cannot_download, embedded_program
from proxy.processes.llama_server import environment
from proxy.processes.process import Process
from proxy.processes.start_progress import Stage, StageListener, StartLog, StartProgress

# the model is about to be loaded when it is complete: no more of it than has to be
_SMALL = ("-c", "256", "-np", "1")


async def download(program: tuple[str, ...], repository: str, on_stage: StageListener) -> Path:
    """Download a repository's model, such as `owner/name:Q4_K_M`; returns where it lies.

    What is there already is not downloaded again. Raises `LaunchFailed`.
    """
    if program == embedded_program():
        raise LaunchFailed(NAME, cannot_download(repository), is_lasting=True)
    log = StartLog(repository)
    complete = asyncio.Event()

    def listen(line: str) -> None:
        if (progress := log.read(line)) is not None and not complete.is_set():
            on_stage(progress)
        if log.path:
            complete.set()

    on_stage(StartProgress(repository, Stage.STARTING))
    command = (*program, "-hf", repository, "--host", HOST, "--port", "0", *_SMALL)
    process = await Process.start(
        command, name=NAME, environment=environment(""), listener=listen, on_terminal=True
    )
    waiting = asyncio.create_task(complete.wait())
    ended = asyncio.create_task(process.wait())
    try:
        await asyncio.wait({waiting, ended}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        await process.stop()
        await asyncio.gather(waiting, ended, return_exceptions=True)
    if not complete.is_set():
        cause = explain_failure(process.tail)
        raise LaunchFailed(NAME, cause.sentence, process.tail, is_lasting=True)
    return Path(log.path)
