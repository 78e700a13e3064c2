"""The candidates: how Temper and each other proxy are started in front of a backend."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from benchmarks.load import peers
from proxy.conversation import json

REPOSITORY = Path(__file__).parents[2]
DIRECT = "direct"
TEMPER = "temper"

# The text policy: accept prose, offer the model an answer tool, or Temper's default.
Prose: TypeAlias = Literal["accept", "respond", "default"]


@dataclass(frozen=True, slots=True)
class Situation:
    """The backend, the port and the folders for the start of a proxy.

    The proxy writes its files to `folder`. `peers` has the installed proxies, and `temper` is the
    measured checkout of Temper.
    """

    backend_url: str
    port: int
    prose: Prose
    folder: Path
    peers: Path
    temper: Path = REPOSITORY


@dataclass(frozen=True, slots=True)
class Launch:
    """A command line with its folder and environment, and the headers that clients must send."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def temper(situation: Situation) -> Launch:
    return Launch((sys.executable, "-m", *temper_arguments(situation)), folder=situation.temper)


def temper_arguments(situation: Situation) -> tuple[str, ...]:
    """Return the module of Temper's command and its arguments."""
    policy = () if situation.prose == "default" else ("--text-policy", situation.prose)
    flags = ("--port", str(situation.port), *policy, "--json")
    return ("proxy", "serve", "--backend-url", situation.backend_url, *flags)


def nginx(situation: Situation) -> Launch:
    """Run nginx without any processing, as the lower bound for a proxy."""
    program = peers.program("nginx")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = " ".join(f"{kind}_temp_path {situation.folder}/{kind};" for kind in kinds)
    settings = _NGINX.format(
        backend=situation.backend_url.removeprefix("http://"),
        folder=situation.folder,
        port=situation.port,
        temporary=temporary,
    )
    file = situation.folder / "nginx.conf"
    file.write_text(settings, encoding="utf-8")
    return Launch((program, "-p", str(situation.folder), "-e", "stderr", "-c", str(file)))


_NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr;
events {{ worker_connections 4096; }}
http {{
    access_log off; client_max_body_size 64m; client_body_buffer_size 2m; {temporary}
    keepalive_requests 10000000;
    upstream backend {{ server {backend}; keepalive 512; keepalive_requests 10000000; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_buffering off; proxy_read_timeout 600s;
        }}
    }}
}}
"""


def bare(situation: Situation) -> Launch:
    """Run the lower bound for a Python proxy (see `bare.py`)."""
    python = peers.python_of(situation.peers, "bare")
    script = Path(__file__).with_name("bare.py")
    return Launch((str(python), str(script), situation.backend_url, str(situation.port)))


def forge(situation: Situation) -> Launch:
    """Run forge's proxy in front of a server that it does not manage."""
    python = peers.python_of(situation.peers, "forge")
    extra = ("--inject-respond-tool",) if situation.prose == "respond" else ()
    address = ("--backend-url", situation.backend_url, "--port", str(situation.port))
    return Launch((str(python), "-m", "forge.proxy", *address, *extra))


def litellm(situation: Situation) -> Launch:
    """Run LiteLLM's proxy with one route for all models."""
    python = peers.python_of(situation.peers, "litellm")
    route: json.JsonObject = {
        "model_name": "*",
        "litellm_params": {
            "model": "openai/*",
            "api_base": f"{situation.backend_url}/v1",
            "api_key": "nobody",
        },
    }
    file = situation.folder / "litellm.yaml"
    rights: json.JsonObject = {"dangerously_permit_weak_or_unset_master_key": True}
    # LiteLLM reads YAML, and JSON is valid YAML
    file.write_bytes(json.dump({"model_list": [route], "general_settings": rights}))
    program = str(python.with_name("litellm"))
    # without this, LiteLLM tries to fetch a list of prices, and starts later
    environment = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_DOCS": "True"}
    flags = ("--config", str(file), "--host", "127.0.0.1", "--port", str(situation.port))
    return Launch((program, *flags, "--num_workers", "1", "--telemetry", "False"), environment)


def portkey(situation: Situation) -> Launch:
    """Run Portkey's gateway; clients name the backend in headers."""
    server = situation.peers / peers.PORTKEY / "build" / "start-server.js"
    peers.version(situation.peers, "portkey")
    headers = {
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": f"{situation.backend_url}/v1",
    }
    command = (peers.program("node"), str(server), f"--port={situation.port}", "--headless")
    return Launch(command, {"NODE_ENV": "production"}, headers=headers)


LAUNCHES: dict[str, Callable[[Situation], Launch]] = {
    TEMPER: temper,
    "nginx": nginx,
    "bare": bare,
    "forge": forge,
    "litellm": litellm,
    "portkey": portkey,
}
CANDIDATES = (DIRECT, *LAUNCHES)


def kind_of(candidate: str) -> str:
    """Return `temper` for `temper@PATH` (Temper from another checkout); otherwise, `candidate`."""
    kind, at, _ = candidate.partition("@")
    return kind if kind == TEMPER and at else candidate


def launch_of(candidate: str, situation: Situation) -> Launch:
    """Return the launch of a candidate; raises NotAvailable."""
    kind = kind_of(candidate)
    if kind != candidate:
        situation = replace(situation, temper=Path(candidate.partition("@")[2]).resolve())
    return LAUNCHES[kind](situation)
