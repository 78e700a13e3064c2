"""Finds the llama-server program, and builds and checks its command line.

    llama-server -m qwen3.gguf -np 2 -c 65536 --host 127.0.0.1 --port 0 --jinja --no-webui ...

`check_plan` rejects a plan that cannot work before a process is started.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from proxy.errors import LaunchFailed
from proxy.processes.embedded import DEVICES_FLAG, DEVICES_TITLE
from proxy.processes.process import python_module
from proxy.profiles.profile import Sampling

NAME = "llama-server"
HOST = "127.0.0.1"
# field of `Sampling` -> flag of llama-server
_SAMPLING_FLAGS = {
    "temperature": "--temp",
    "top_p": "--top-p",
    "top_k": "--top-k",
    "min_p": "--min-p",
    "repeat_penalty": "--repeat-penalty",
    "presence_penalty": "--presence-penalty",
}


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The parameters of a llama-server's start.

    `model` is a GGUF file, or a repository of Hugging Face such as `owner/name:Q4_K_M`, which the
    server downloads. `context_tokens` is the window of each of the `slots`. `alias` is the model's
    name for clients. If `gpu_layers` is None, as many layers as fit are on the GPU. If `port` is 0,
    the system chooses a free port. `extra` are further arguments. Slots can be saved only if
    `slot_folder` is set.
    """

    program: tuple[str, ...]
    model: Path | str
    context_tokens: int
    slots: int = 1
    alias: str | None = None
    gpu_layers: int | None = None
    flash_attention: str = "auto"
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    port: int = 0
    extra: tuple[str, ...] = ()
    slot_folder: Path | None = None

    def command(self) -> tuple[str, ...]:
        """Return the command line; it contains no secret."""
        source = ("-m", str(self.model)) if isinstance(self.model, Path) else ("-hf", self.model)
        # Without -np, all slots share one KV cache, and a request that fills it makes the requests
        # of all slots fail. With -np, each slot gets an equal part of `-c`.
        size = ("-np", str(self.slots), "-c", str(self.slots * self.context_tokens))
        address = ("--host", HOST, "--port", str(self.port))
        alias = ("-a", self.alias) if self.alias else ()
        saving = ("--slot-save-path", str(self.slot_folder)) if self.slot_folder else ()
        # templates with tools need Jinja; the doctor reads /slots and /metrics
        options = ("--jinja", "--no-webui", "--slots", "--metrics", *alias, *self.extra, *saving)
        return (*self.program, *source, *size, *self._tuning(), *address, *options)

    def _tuning(self) -> tuple[str, ...]:
        """Return the arguments for values other than the defaults.

        Arguments for defaults are omitted, because old builds do not know all of these flags.
        """
        options = (
            ("-ngl", "" if self.gpu_layers is None else str(self.gpu_layers)),
            ("-fa", "" if self.flash_attention == "auto" else self.flash_attention),
            ("-ctk", "" if self.cache_type_k == "f16" else self.cache_type_k),
            ("-ctv", "" if self.cache_type_v == "f16" else self.cache_type_v),
        )
        return tuple(word for flag, value in options if value for word in (flag, value))

    def __str__(self) -> str:
        program = "the embedded server" if self.is_embedded else self.program[0]
        parts = (
            f"{self.model} on {program}",
            f"{self.slots} x {self.context_tokens} tokens",
            *(() if self.gpu_layers is None else (f"{self.gpu_layers} layers on the GPU",)),
            f"flash attention {self.flash_attention}",
            f"KV cache {self.cache_type_k}/{self.cache_type_v}",
            f"port {self.port}" if self.port else "a free port",
        )
        return ", ".join(parts) + (f", {' '.join(self.extra)}" if self.extra else "")

    @property
    def downloads(self) -> bool:
        """True if the server gets its model from Hugging Face, or from the cache of downloads."""
        return not isinstance(self.model, Path)

    @property
    def is_embedded(self) -> bool:
        return self.program == embedded_program()


def sampling_flags(sampling: Sampling) -> tuple[str, ...]:
    """Return the flags that make these values the server's defaults, e.g. ("--temp", "0.7")."""
    values = asdict(sampling)
    options = ((flag, values[name]) for name, flag in _SAMPLING_FLAGS.items())
    flags = [(flag, format(value, "g")) for flag, value in options if value is not None]
    return tuple(chain.from_iterable(flags))


def find_program(program: Path | None = None) -> tuple[str, ...]:
    """Return the command of `program`, of the llama-server on PATH, or of the embedded server.

    Raises `LaunchFailed` if `program` cannot be run, or if no server is installed.
    """
    if program is not None:
        if program.is_file() and os.access(program, os.X_OK):
            return (str(program),)
        problem = (
            f"cannot be started: model.server {program} is not a program that this user may run"
        )
        raise LaunchFailed(NAME, problem, is_lasting=True)
    has_embedded = importlib.util.find_spec("xllamacpp") is not None
    return choose_program(shutil.which(NAME), has_embedded=has_embedded)


def choose_program(on_path: str | None, *, has_embedded: bool) -> tuple[str, ...]:
    """Prefer the llama-server on PATH, which may support the GPU, to the embedded server."""
    if on_path:
        return (on_path,)
    if has_embedded:
        return embedded_program()
    raise LaunchFailed(
        NAME,
        "cannot be started: no llama-server on PATH, and the embedded server is not installed: "
        "pip install 'temper-proxy[embedded]'",
        is_lasting=True,
    )


def embedded_program() -> tuple[str, ...]:
    return python_module("proxy.processes.embedded")


def check_plan(plan: LaunchPlan) -> None:
    """Raise `LaunchFailed` if a plan cannot work, before a process is started."""
    if isinstance(plan.model, Path):
        check_model_file(plan.model)
    elif plan.is_embedded:
        raise LaunchFailed(NAME, cannot_download(plan.model), is_lasting=True)
    if plan.port:
        _check_port(plan.port)


def cannot_download(repository: str) -> str:
    """Return the error message for a download with the embedded server."""
    return (
        f"was not started: the embedded server cannot download {repository}. "
        f"Run `temper pull {repository}`, and start the file that it prints with --model."
    )


def check_model_file(model: Path) -> None:
    """Raise `LaunchFailed` if the file cannot be a model."""
    if problem := model_file_problem(model):
        sentence = f"was not started: the model file {model} {problem}"
        raise LaunchFailed(NAME, sentence, is_lasting=True)


def model_file_problem(model: Path) -> str:
    """Return why a file cannot be a model, "" if it can."""
    try:
        if model.is_dir():
            return "is a folder: give the path of the .gguf file in it"
        if model.exists() and not model.is_file():  # a pipe or device may block forever
            return "is not a file: give the path of a .gguf file"
        with model.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError:
        return "does not exist: check the path"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    is_model = magic == b"GGUF"
    return "" if is_model else "is not a GGUF file: convert it or download the GGUF version"


def _check_port(port: int) -> None:
    """Raise `LaunchFailed` if another program uses the port, because not all servers check this."""
    try:
        with socket.create_server((HOST, port)):
            pass
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno is not None else str(error)
        problem = (
            f"was not started: port {port} (model.port) cannot be used ({reason}); "
            "choose another port, or 0 for a free port"
        )
        raise LaunchFailed(NAME, problem, is_lasting=True) from error


_DEVICES_SECONDS = 10.0  # loading GPU drivers takes seconds


def uses_devices(program: Sequence[str]) -> bool:
    """Return whether a llama-server lists a GPU; True if it does not support listing them."""
    try:
        result = subprocess.run(  # noqa: S603 - the program that is about to be started
            (*program, DEVICES_FLAG), capture_output=True, timeout=_DEVICES_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return True
    output = result.stdout.decode(errors="replace")
    if result.returncode != 0 or DEVICES_TITLE not in output:
        return True
    return bool(output.partition(DEVICES_TITLE)[2].strip())
