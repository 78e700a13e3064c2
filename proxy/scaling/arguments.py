"""The arguments of the application on Ray Serve, and its deployment options.

    serve run proxy.scaling.serve:app config=/etc/temper.toml replicas=auto gpus=1

Ray stores the arguments and shows them on its dashboard, so the arguments must not contain secrets:
an argument only names the settings file. This module does not import ray.
"""

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, TypeAlias

from proxy.errors import InvalidConfiguration
from proxy.settings import DEFAULT_FILE, Settings, load_settings

Replicas: TypeAlias = int | Literal["auto"]
Affinity: TypeAlias = Literal["session", "load"]
Options: TypeAlias = dict[str, "int | float | str | bool | Options | None"]

_MARGIN_SECONDS = 5.0  # from the end of a replica's grace period until Serve kills the replica
_TRIES = 2  # a model that fails to load twice also fails the third time
_BY_SESSION = "ray.serve.experimental.consistent_hash_router:ConsistentHashRouter"


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments; see docs/guides/growing.md.

    - `config`: a settings file on every node, "" for `temper.toml` in the working directory.
    - `revision`: a new value makes the replicas read the file again.
    - `replicas`: a number, or "auto" for 1 to `most` replicas with a managed engine.
    - `cpus`, `gpus`: reserved for each replica.
    - `affinity`: whether requests of a session are sent to the same replica ("session", the default
      if each replica has an engine), or to the replica with the fewest requests ("load").
    - `scraping`: a folder in which every replica publishes the address of its metrics.
    """

    config: str = ""
    revision: str = ""
    replicas: Replicas = 1
    most: int = 4
    cpus: float = 1.0
    gpus: float = 0.0
    affinity: Affinity | None = None
    scraping: str = ""

    @property
    def file(self) -> Path:
        return Path(self.config) if self.config else DEFAULT_FILE


def read_arguments(values: Mapping[str, object]) -> Arguments:
    """Parse the arguments, whose values may be text; raises `InvalidConfiguration`.

    An argument without a value, such as `affinity:` in YAML, counts as missing.
    """
    known = [field.name for field in fields(Arguments)]
    for name in values:
        if name not in known:
            matches = difflib.get_close_matches(str(name), known, 1)
            hint = f"; did you mean {matches[0]}?" if matches else f": {', '.join(known)}"
            raise InvalidConfiguration(str(name), f"is not an argument{hint}")
    texts = {name: str(value).strip() for name, value in values.items() if value is not None}
    replicas = texts.get("replicas", "1")
    return Arguments(
        config=texts.get("config", ""),
        revision=texts.get("revision", ""),
        replicas="auto" if replicas == "auto" else _count("replicas", replicas),
        most=_count("most", texts.get("most", "4")),
        cpus=_amount("cpus", texts.get("cpus", "1")),
        gpus=_amount("gpus", texts.get("gpus", "0")),
        affinity=_affinity(texts.get("affinity")),
        scraping=texts.get("scraping", ""),
    )


def check_settings(arguments: Arguments) -> Settings:
    """Load the settings as each replica does; raises `InvalidConfiguration`.

    A cluster is reachable from other machines, so an API key is required.
    """
    settings = load_settings(arguments.file if arguments.config else None)
    if settings.server.api_key is None and settings.server.api_keys_file is None:
        problem = (
            "a key is required on a cluster: name a file of every node in "
            "TEMPER_SERVER__API_KEY_FILE or server.api_keys_file"
        )
        raise InvalidConfiguration("server.api_key", problem)
    if arguments.replicas == "auto" and not is_unit(settings):
        problem = "'auto' requires a managed engine for each replica (model.path): give a number"
        raise InvalidConfiguration("replicas", problem)
    return settings


def is_unit(settings: Settings) -> bool:
    """Return whether each replica is a unit: Temper with a managed llama-server."""
    return settings.model.source is not None or bool(settings.models)


def fingerprint(arguments: Arguments) -> str:
    """Return a hash of the settings file and the `revision`.

    Serve replaces the replicas if an argument has changed, and the fingerprint is an argument.
    """
    try:
        content = arguments.file.read_bytes()
    except OSError:  # the file is optional: settings may come from the environment
        content = b""
    return hashlib.sha256(content + arguments.revision.encode()).hexdigest()[:16]


def deployment_options(
    arguments: Arguments, settings: Settings, *, is_behind_haproxy: bool = False
) -> Options:
    """Return the deployment options for Serve.

    Serve must not queue requests, because its queue is not fair and sends no Retry-After. With
    HAProxy as Serve's proxy, no router is set, because HAProxy ignores it.
    """
    options: Options = {
        "name": "temper",
        "max_ongoing_requests": settings.server.max_connections,
        "graceful_shutdown_timeout_s": settings.server.grace_seconds + _MARGIN_SECONDS,
        # with Ray's default of 10 s, a dead replica gets requests for longer
        "health_check_period_s": 2.0,
        "max_constructor_retry_count": _TRIES,
        "ray_actor_options": {"num_cpus": arguments.cpus, "num_gpus": arguments.gpus},
    }
    if arguments.replicas == "auto":
        options["autoscaling_config"] = {
            "min_replicas": 1,
            "max_replicas": arguments.most,
            "target_ongoing_requests": settings.model.slots,
            "downscale_delay_s": 600.0,  # loading the model of a new replica is slow
        }
    else:
        options["num_replicas"] = arguments.replicas
    affinity = arguments.affinity or ("session" if is_unit(settings) else "load")
    if affinity == "session" and not is_behind_haproxy:
        options["request_router_config"] = {"request_router_class": _BY_SESSION}
    return options


def _affinity(text: str | None) -> Affinity | None:
    match text:
        case None | "session" | "load":
            return text
        case _:
            raise InvalidConfiguration("affinity", f"should be session or load, not {text!r}")


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InvalidConfiguration(name, f"should be a number of at least 1, not {text!r}")
    return int(text)


def _amount(name: str, text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        raise InvalidConfiguration(name, f"should be a number of at least 0, not {text!r}")
    return amount
