"""The engines of the suite, and the way to start each with the model in `model.py`.

An engine from PyPI has a separate virtual environment. A variable names its Python:
`ENGINES_TRANSFORMERS`, `ENGINES_VLLM`, `ENGINES_ROUTER` and `ENGINES_LITELLM`.
`docs/contributing.md` describes how to create them.
"""

import importlib.metadata
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.load.processes import free_port
from proxy.processes.launch import LaunchPlan, embedded_program
from tests.engines.model import FLAGS, MODEL_FILE, NAME, WINDOW
from tests.engines.model_folder import write
from tests.fakes.llama import serving

KEY = "sk-of-the-suite"
_LOOK = 0.2
_START_SECONDS = 600  # vLLM takes two minutes on a busy machine
_TIED_TO_US = sys.executable, "-m", "proxy.processes.parent_death"
_PYTHON = "-c", "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"


@dataclass(frozen=True)
class Running:
    """A running engine; `settings` are environment variables of the Temper in front of it.

    `window` is the context window of the model, or 0 if Temper must request it from the engine.
    `generated` returns the number of generated tokens since the start, if the engine reports it.
    """

    url: str
    model: str
    version: str
    api_key: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    generated: Callable[[], int] | None = None
    window: int = WINDOW


@dataclass(frozen=True)
class RealEngine:
    """An engine that can be started.

    `needs` names the environment variables of its programs. It `constrains` if it can force a call
    into its schema, `counts` if it has an endpoint that counts tokens, and `keeps_its_window` if it
    rejects oversized prompts. At least `least_calls` of the twelve requests must become calls, and
    `conversations` is the number of random conversations that must not be compacted.
    """

    name: str
    start: Callable[["Workplace"], AbstractContextManager[Running]]
    needs: tuple[str, ...] = ()
    constrains: bool = True
    counts: bool = True
    keeps_its_window: bool = True
    least_calls: int = 10
    conversations: int = 50

    @property
    def id(self) -> str:
        return self.name.replace(",", "").replace(" ", "-")

    @property
    def missing(self) -> str:
        """The reason why it cannot be started, or ""."""
        absent = [name for name in self.needs if not os.environ.get(name)]
        return f"no Python is named by {', '.join(absent)}" if absent else ""


@dataclass
class Workplace:
    """A folder for the files of engines, and the running engines."""

    folder: Path
    stack: ExitStack = field(default_factory=ExitStack)
    _running: dict[str, Running] = field(default_factory=dict)
    _model: Path | None = None

    @property
    def model(self) -> Path:
        """The model as a folder of Hugging Face."""
        if self._model is None:
            self._model = write(self.folder / "model")
        return self._model

    def running(self, engine: RealEngine) -> Running:
        """Return an engine; it is started on the first use."""
        if engine.name not in self._running:
            self._running[engine.name] = self.stack.enter_context(engine.start(self))
        return self._running[engine.name]

    @contextmanager
    def process(
        self, command: Sequence[str], health: str, **environment: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run a server during the block, which begins when the server is healthy.

        The server has a separate session, because vLLM kills its own process group, and the
        children of vllm-router outlive the router. The server ends with this process, even if
        this process is killed.
        """
        log = self.folder / f"{Path(command[0]).parents[1].name}-{free_port()}.log"
        surroundings = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **environment}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*_TIED_TO_US, str(os.getpid()), *command],
                stdout=output,
                stderr=output,
                env=surroundings,
                start_new_session=True,
            )
            try:
                _until_healthy(process, health, log)
                yield process
            finally:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=30)
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _until_healthy(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    with httpx.Client(trust_env=False, timeout=5) as client:
        while time.monotonic() < until and process.poll() is None:
            try:
                if client.get(url).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            time.sleep(_LOOK)
    raise AssertionError(f"it does not start: {log.read_text(errors='replace')[-3000:]}")


def metric(url: str, name: str, headers: Mapping[str, str] | None = None) -> Callable[[], int]:
    """Return a function that reads the sum of a counter's series."""

    def read() -> int:
        text = httpx.get(f"{url}/metrics", headers=headers, trust_env=False).text
        lines = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
        return round(sum(float(line.rpartition(" ")[2]) for line in lines))

    return read


def version_of(python: str, package: str) -> str:
    """Return the version of a package in another environment."""
    output = subprocess.run([python, *_PYTHON, package], check=True, capture_output=True, text=True)
    return output.stdout.strip()


@contextmanager
def _llama_server(_: Workplace) -> Iterator[Running]:
    extra = (*FLAGS, "--metrics")
    plan = LaunchPlan(embedded_program(), MODEL_FILE, WINDOW, slots=2, alias=NAME, extra=extra)
    with serving(plan) as server:
        key = {"authorization": f"Bearer {server.api_key}"}
        generated = metric(server.base_url, "llamacpp:tokens_predicted_total", key)
        version = f"xllamacpp {importlib.metadata.version('xllamacpp')}"
        yield Running(server.base_url, NAME, version, server.api_key, generated=generated)


# the engine neither reports nor enforces a window
_KNOWN_WINDOW = {"TEMPER_CONTEXT__BUDGET": "manual", "TEMPER_CONTEXT__WINDOW_TOKENS": str(WINDOW)}


@contextmanager
def _transformers(workplace: Workplace) -> Iterator[Running]:
    python, port, home = os.environ["ENGINES_TRANSFORMERS"], free_port(), workplace.folder / "home"
    (home / "hub").mkdir(parents=True, exist_ok=True)  # without it the model list is an error
    program = str(Path(python).with_name("transformers"))
    model = str(workplace.model)
    where = ("--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32")
    url = f"http://127.0.0.1:{port}"
    with workplace.process([program, "serve", model, *where], f"{url}/health", HF_HOME=str(home)):
        yield Running(url, model, version_of(python, "transformers"), settings=_KNOWN_WINDOW)


def _vllm(*flags: str) -> Callable[[Workplace], AbstractContextManager[Running]]:
    @contextmanager
    def start(workplace: Workplace) -> Iterator[Running]:
        python, port = os.environ["ENGINES_VLLM"], free_port()
        server = (python, "-m", "vllm.entrypoints.openai.api_server")
        model = ("--model", str(workplace.model), "--served-model-name", NAME, "--dtype", "float32")
        small = ("--max-model-len", str(WINDOW), "--max-num-seqs", "8", "--enforce-eager")
        where = ("--host", "127.0.0.1", "--port", str(port), "--enable-prompt-tokens-details")
        url = f"http://127.0.0.1:{port}"
        with workplace.process(
            [*server, *model, *small, *where, *flags],
            f"{url}/health",
            VLLM_CPU_KVCACHE_SPACE="1",
            VLLM_CPU_OMP_THREADS_BIND="nobind",
        ):
            generated = metric(url, "vllm:generation_tokens_total")
            yield Running(url, NAME, version_of(python, "vllm-cpu"), generated=generated)

    return start


def _parser(name: str) -> tuple[str, ...]:
    return "--enable-auto-tool-choice", "--tool-call-parser", name


VLLM = RealEngine("vLLM, its hermes parser", _vllm(*_parser("hermes")), ("ENGINES_VLLM",))


@contextmanager
def _router(workplace: Workplace) -> Iterator[Running]:
    upstream = workplace.running(VLLM)
    python, port, other = os.environ["ENGINES_ROUTER"], free_port(), free_port()
    program = str(Path(python).with_name("vllm-router"))
    where = ("--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(other))
    url = f"http://127.0.0.1:{port}"
    with workplace.process([program, "--worker-urls", upstream.url, *where], f"{url}/health"):
        version = version_of(python, "vllm-router")
        yield Running(url, NAME, version, generated=upstream.generated)


_LITELLM = """
model_list:
  - model_name: {name}
    litellm_params: {{model: hosted_vllm/{name}, api_base: "{url}/v1", api_key: none}}
    model_info: {{max_input_tokens: {window}}}
litellm_settings: {{drop_params: false, num_retries: 0}}
general_settings: {{master_key: {key}}}
"""


@contextmanager
def _litellm(workplace: Workplace) -> Iterator[Running]:
    upstream = workplace.running(VLLM)
    python, port = os.environ["ENGINES_LITELLM"], free_port()
    program = str(Path(python).with_name("litellm"))
    file = workplace.folder / "litellm.yaml"
    file.write_text(
        _LITELLM.format(name=NAME, url=upstream.url, window=WINDOW, key=KEY), encoding="utf-8"
    )
    command = [program, "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    with workplace.process(
        command, f"{url}/health/liveliness", LITELLM_LOCAL_MODEL_COST_MAP="True", PATH=path
    ):
        version = version_of(python, "litellm")
        yield Running(url, NAME, version, KEY, generated=upstream.generated)


def users_server(url: str) -> RealEngine:
    """Describe the server that the user runs at `url`; its key is in `ENGINE_API_KEY`."""

    @contextmanager
    def running_engine(_: Workplace) -> Iterator[Running]:
        yield Running(url, "", "", os.environ.get("ENGINE_API_KEY", ""), window=0)

    return RealEngine(
        url,
        running_engine,
        constrains=False,
        counts=False,
        keeps_its_window=False,
        least_calls=0,
        conversations=0,
    )


ENGINES = (
    RealEngine("llama-server", _llama_server, conversations=10),  # in every run of CI
    RealEngine(
        "transformers serve",
        _transformers,
        ("ENGINES_TRANSFORMERS",),
        constrains=False,
        counts=False,
        conversations=0,
    ),
    VLLM,
    RealEngine("vLLM behind vllm-router", _router, ("ENGINES_VLLM", "ENGINES_ROUTER")),
    RealEngine(  # /tokenize fails for long prompts, so Temper uses estimates
        "vLLM behind LiteLLM", _litellm, ("ENGINES_VLLM", "ENGINES_LITELLM"), conversations=0
    ),
    # calls are constrained as text, and some strings of the model continue until the token limit
    RealEngine("vLLM, no parser", _vllm(), ("ENGINES_VLLM",), constrains=False),
    RealEngine(
        "vLLM, wrong parser", _vllm(*_parser("pythonic")), ("ENGINES_VLLM",), constrains=False
    ),
)
