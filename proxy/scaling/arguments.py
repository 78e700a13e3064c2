"""The arguments of the application on Ray Serve, and the deployment options that follow.

Ray stores arguments and shows them on its dashboard, so none may hold a secret: settings are given
by the name of their file. This module does not import ray.
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

_MARGIN_SECONDS = 5.0  # after the grace period of a replica
_TRIES = 2  # a broken model does not start at the third attempt either
_BY_SESSION = "ray.serve.experimental.consistent_hash_router:ConsistentHashRouter"


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments, see docs/guides/growing.md.

    `config` is a settings file on every node, "" for `temper.toml` in the working directory. A new
    `revision` makes replicas read it again. `replicas` may be "auto" for units, replicas with a
    managed engine: 1 to `most`. In the folder `scraping` every replica publishes its metrics.
    `cpus` and `gpus` are reserved for each. The `affinity` routes requests: by default to the
    replica of the session if each has an engine, else to the least loaded one.
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


def read_arguments(given: Mapping[str, object]) -> Arguments:
    """Read the arguments, also from text; raises `InvalidConfiguration`.

    An argument without a value, such as `affinity:` in YAML, counts as missing.
    """
    known = [field.name for field in fields(Arguments)]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            meant = f"; did you mean {near[0]}?" if near else f": {', '.join(known)}"
            raise InvalidConfiguration(str(name), f"is not an argument{meant}")
    texts = {name: str(value).strip() for name, value in given.items() if value is not None}
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
    """Read the settings as every replica will; raises `InvalidConfiguration`.

    A cluster is reachable from other machines, so a key is required.
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
    """Return a value that changes with the settings file, so that Serve replaces the replicas.

    Serve compares arguments only; a changed file with equal arguments needs a new `revision`.
    """
    try:
        content = arguments.file.read_bytes()
    except OSError:  # optional: the settings may come from the environment
        content = b""
    return hashlib.sha256(content + arguments.revision.encode()).hexdigest()[:16]


def deployment_options(
    arguments: Arguments, settings: Settings, *, is_behind_haproxy: bool = False
) -> Options:
    """Return the deployment options for Serve.

    Serve must not queue requests before Temper: its queue is not fair and sends no Retry-After.
    HAProxy, if it is Serve's proxy, ignores the router.
    """
    options: Options = {
        "name": "temper",
        "max_ongoing_requests": settings.server.max_connections,
        "graceful_shutdown_timeout_s": settings.server.grace_seconds + _MARGIN_SECONDS,
        "health_check_period_s": 2.0,  # Ray's default is 10 s, in which a dead unit gets requests
        "max_constructor_retry_count": _TRIES,
        "ray_actor_options": {"num_cpus": arguments.cpus, "num_gpus": arguments.gpus},
    }
    if arguments.replicas == "auto":
        options["autoscaling_config"] = {
            "min_replicas": 1,
            "max_replicas": arguments.most,
            "target_ongoing_requests": settings.model.slots,
            "downscale_delay_s": 600.0,  # a unit that was loaded stays for so long
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
