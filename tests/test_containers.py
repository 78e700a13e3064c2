"""Checks the Dockerfile and the compose file without a container engine."""

import json
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import jsonschema
import pytest
import yaml

from benchmarks.load.processes import free_port
from proxy.conversation.json import JsonObject, JsonValue
from proxy.settings import Settings, load_settings
from tests.fakes.command import running_temper
from tests.timeouts import TIMEOUT_SECONDS

REPOSITORY = Path(__file__).parents[1]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
COMPOSE: JsonObject = yaml.safe_load(
    (REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8")
)

# The part of the compose specification that the file uses; any other key is an error.
TEXTS: JsonValue = {"type": "array", "items": {"type": "string"}, "minItems": 1}
DURATION: JsonValue = {"type": "string", "pattern": r"^(\d+(\.\d+)?(ms|s|m|h))+$"}
SERVICE: JsonValue = {
    "type": "object",
    "additionalProperties": False,
    "oneOf": [{"required": ["image"]}, {"required": ["build"]}],
    "properties": {
        "image": {"type": "string", "pattern": r"^[\w./-]+:[\w.-]+$"},
        "build": {"type": "string"},
        "command": TEXTS,
        "environment": {"type": "object", "additionalProperties": {"type": "string"}},
        "ports": {"type": "array", "items": {"type": "string", "pattern": r"^127\.0\.0\.1:"}},
        "volumes": TEXTS,
        "profiles": TEXTS,
        "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
        "stop_grace_period": DURATION,
        "read_only": {"const": True},
        "tmpfs": TEXTS,
        "cap_drop": {"const": ["ALL"]},
        "security_opt": {"const": ["no-new-privileges:true"]},
        "networks": TEXTS,
        "depends_on": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "required": ["condition"],
                "properties": {"condition": {"const": "service_healthy"}},
            },
        },
        "healthcheck": {
            "type": "object",
            "additionalProperties": False,
            "required": ["test"],
            "properties": {
                "test": {"type": "array", "prefixItems": [{"const": "CMD"}], "minItems": 2},
                "interval": DURATION,
                "timeout": DURATION,
                "start_period": DURATION,
                "retries": {"type": "integer", "minimum": 1},
            },
        },
    },
}
COMPOSE_SCHEMA: JsonObject = {
    "type": "object",
    "additionalProperties": False,
    "required": ["services"],
    "patternProperties": {"^x-": {"type": "object"}},
    "properties": {
        "services": {"type": "object", "additionalProperties": SERVICE},
        "volumes": {"type": "object", "additionalProperties": {"type": "null"}},
        "networks": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"internal": {"type": "boolean"}},
            },
        },
    },
}


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    return [
        (line.split(maxsplit=1)[0], line.split(maxsplit=1)[1].strip())
        for line in text.splitlines()
        if line.strip()
    ]


def last(instruction: str) -> str:
    return [content for name, content in instructions() if name == instruction][-1]


def command_in(content: str) -> list[str]:
    command: list[str] = json.loads(content[content.index("[") :])
    return command


def member(value: JsonValue, *path: str) -> JsonValue:
    for name in path:
        assert isinstance(value, dict)
        value = value[name]
    return value


def services() -> JsonObject:
    value = member(COMPOSE, "services")
    assert isinstance(value, dict)
    return value


def temper_services() -> list[str]:
    return [name for name, service in services().items() if "build" in json.dumps(service)]


class _Health(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
        """Log nothing."""


class _Sick(_Health):
    status = 503


@contextmanager
def server_on_a_free_port(kind: type[_Health]) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", free_port()), kind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def health_check(port: int) -> int:
    python, *arguments = command_in(last("HEALTHCHECK"))
    assert python == "python"
    arguments = [argument.replace("8367", str(port)) for argument in arguments]
    return subprocess.run([sys.executable, *arguments], check=False, capture_output=True).returncode


def test_the_dockerfile_uses_slim_python_and_an_unprivileged_user() -> None:
    bases = [content for name, content in instructions() if name == "FROM"]
    assert all(base.startswith("python:3.12-slim") for base in bases)
    # Kubernetes rejects a user name, because it cannot tell whether the name stands for root
    assert last("USER") == "10001:10001"
    assert "--uid 10001 --gid 10001" in DOCKERFILE
    order = [name for name, _ in instructions()]
    assert order.index("USER") < order.index("CMD")


def test_files_that_the_image_copies_exist_and_are_not_ignored() -> None:
    allowed = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for name, content in instructions():
        if name == "COPY" and not content.startswith("--from"):
            for source in content.split()[:-1]:
                assert (REPOSITORY / source).exists()
                assert f"!{source}" in allowed


def test_the_command_of_the_image_is_installed_and_valid() -> None:
    program, *arguments = command_in(last("CMD"))
    assert program in PROJECT["project"]["scripts"]
    result = subprocess.run(
        [sys.executable, "-m", "proxy", *arguments, "--help"],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
    )
    assert result.returncode == 0, result.stderr


def test_health_check_passes_only_if_temper_is_healthy() -> None:
    with server_on_a_free_port(_Health) as port:
        assert health_check(port) == 0
    with server_on_a_free_port(_Sick) as port:
        assert health_check(port) != 0
    assert health_check(port) != 0


def test_health_check_uses_the_default_port_of_temper() -> None:
    port = Settings().server.port
    assert last("EXPOSE") == str(port)
    assert f"'127.0.0.1', {port}" in last("HEALTHCHECK")


def test_the_compose_file_has_only_keys_that_compose_knows() -> None:
    jsonschema.validate(COMPOSE, COMPOSE_SCHEMA)


def test_misspelled_compose_key_is_detected() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"services": {"a": {"build": ".", "port": []}}}, COMPOSE_SCHEMA)


# variables in the environment of docker compose
GIVEN = {
    "TEMPER_SERVER__API_KEY": "sk-of-a-test",
    "TEMPER_STATE__URL": "valkey://valkey:6379",
    "TEMPER_STATE__SECRET": "0123456789abcdef0123456789abcdef",
}


def engines_of(name: str) -> dict[str, JsonObject]:
    """Return the services that a Temper uses as engines, by their names."""
    environment = member(services()[name], "environment")
    assert isinstance(environment, dict)
    address = environment.get("TEMPER_BACKEND__URL")
    urls = [address] if address else json.loads(str(environment["TEMPER_BACKEND__URLS"]))
    hosts = {httpx.URL(str(url)).host for url in urls}
    engines = {host: services()[host] for host in hosts}
    return {host: service for host, service in engines.items() if isinstance(service, dict)}


def profile_of(name: str) -> JsonValue:
    service = services()[name]
    return service.get("profiles") if isinstance(service, dict) else None


@pytest.mark.parametrize("name", temper_services())
def test_temper_waits_for_the_healthy_engines_of_its_profile(name: str) -> None:
    engines = engines_of(name)
    assert engines
    service = services()[name]
    assert isinstance(service, dict)
    for engine, engine_service in engines.items():
        assert "healthcheck" in engine_service
        assert profile_of(engine) == profile_of(name)
        assert member(service, "depends_on", engine) == {"condition": "service_healthy"}


def test_only_the_temper_of_a_unit_reaches_the_engine_of_the_unit() -> None:
    units = [name for name in temper_services() if profile_of(name) == ["unit"]]
    assert len(units) == 2
    for name in units:
        ((engine, engine_service),) = engines_of(name).items()
        (network,) = networks_of(engine)
        assert member(COMPOSE, "networks", str(network), "internal") is True
        assert [service for service in services() if network in networks_of(service)] == [
            name,
            engine,
        ]
        assert "default" in networks_of(name)
        assert "ports" not in engine_service


def networks_of(name: str) -> list[JsonValue]:
    service = services()[name]
    assert isinstance(service, dict)
    networks = service.get("networks", ["default"])
    assert isinstance(networks, list)
    return networks


def test_the_tempers_of_a_pool_share_all_engines() -> None:
    pool = [name for name in temper_services() if profile_of(name) == ["pool"]]
    assert len(pool) == 2
    first, second = map(engines_of, pool)
    assert first.keys() == second.keys()
    assert len(first) == 2


@pytest.mark.parametrize(("name", "health"), [("pool", "/healthz"), ("unit", "/readyz")])
def test_the_balancer_connects_to_the_tempers_of_its_profile(name: str, health: str) -> None:
    balancer = services()[name]
    port = Settings().server.port
    members = {service for service in temper_services() if profile_of(service) == [name]}
    environment = member(balancer, "environment")
    assert isinstance(environment, dict)
    assert {environment["FIRST"], environment["SECOND"]} == {f"{name}:{port}" for name in members}
    assert environment["HEALTH"] == health
    waits_for = member(balancer, "depends_on")
    assert isinstance(waits_for, dict)
    assert waits_for.keys() == members
    (mounted,) = re.findall(r"\./(deploy\S+?):(\S+):ro", json.dumps(member(balancer, "volumes")))
    assert (REPOSITORY / mounted[0]).is_file()
    configuration = (REPOSITORY / mounted[0]).read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{(\w+)\}", configuration)) == environment.keys()


def test_the_published_ports_are_distinct_and_listed_at_the_top_of_the_file() -> None:
    ports = re.findall(r'"127\.0\.0\.1:(\d+):8367"', json.dumps(COMPOSE["services"]))
    assert sorted(map(int, ports)) == [8367, 8368, 8369, 8370]
    header = (REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8").partition("\n\n")[0]
    assert [port for port in ports if port not in header] == []


@pytest.mark.parametrize("name", temper_services())
def test_temper_gets_valid_settings_and_requires_an_api_key(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = member(services()[name], "environment")
    assert isinstance(environment, dict)
    assert str(environment["TEMPER_SERVER__API_KEY"]).startswith("${TEMPER_SERVER__API_KEY:?")
    monkeypatch.chdir(tmp_path)
    given = re.search(r"TEMPER_SERVER__HOST=(\S+)", last("ENV"))
    assert given
    monkeypatch.setenv("TEMPER_SERVER__HOST", given[1])
    for variable, value in environment.items():
        monkeypatch.setenv(variable, GIVEN.get(variable, str(value)))
    settings = load_settings()
    assert settings.backend.urls or settings.backend.url
    assert settings.state.url is not None


def test_the_store_is_used_only_if_its_url_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in temper_services():
        environment = member(services()[name], "environment")
        assert isinstance(environment, dict)
        for variable in ("TEMPER_STATE__URL", "TEMPER_STATE__SECRET"):
            assert environment[variable] == f"${{{variable}:-}}"
    for variable, value in {**GIVEN, "TEMPER_STATE__URL": "", "TEMPER_STATE__SECRET": ""}.items():
        monkeypatch.setenv(variable, value)
    assert load_settings().state.url is None
    assert profile_of("valkey") == ["state"]


@pytest.mark.parametrize("name", temper_services())
def test_temper_has_no_privileges_in_its_container(name: str) -> None:
    service = services()[name]
    assert isinstance(service, dict)
    assert service["read_only"] is True
    assert isinstance(service["tmpfs"], list)
    assert service["cap_drop"] == ["ALL"]
    cache = str(member(service, "environment", "XDG_CACHE_HOME"))
    assert cache.startswith(f"{service['tmpfs'][0]}/")


def test_temper_serves_without_a_home_folder(tmp_path: Path) -> None:
    nowhere = {"HOME": "/dev/null/home", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    flags = ("--backend-url", "http://127.0.0.1:9")
    with running_temper(*flags, environment=nowhere) as url:
        assert (
            httpx.get(f"{url}/healthz", trust_env=False, timeout=TIMEOUT_SECONDS).status_code == 200
        )


def test_the_extras_that_the_image_installs_exist() -> None:
    match = re.search(r"ARG EXTRAS=(\S+)", DOCKERFILE)
    assert match
    extras = PROJECT["project"]["optional-dependencies"].keys()
    assert set(match[1].split(",")) <= extras
    assert '".[${EXTRAS}]"' in DOCKERFILE


def test_documented_compose_commands_start_services_that_exist() -> None:
    pages = ("docker-compose.yml", "docs/guides/deploying.md", "README.md")
    texts = [(REPOSITORY / page).read_text(encoding="utf-8") for page in pages]
    started = re.findall(r"docker compose up(?: -d)? ([a-z-]+)", "\n".join(texts))
    assert set(started) == {"temper", "temper-ollama", "pool", "unit"}
    assert set(started) <= services().keys()


def test_compose_without_a_profile_starts_temper_and_llama_server() -> None:
    plain = [
        name for name, service in services().items() if '"profiles"' not in json.dumps(service)
    ]
    assert plain == ["temper", "llama-server"]


def test_named_volumes_are_declared() -> None:
    declared = member(COMPOSE, "volumes")
    assert isinstance(declared, dict)
    used = re.findall(r'"([a-z-]+):/[^/]', json.dumps(services()))
    assert set(used) == set(declared)


def test_the_image_copies_all_sources_of_the_wheel() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    sources = [*wheel["packages"], *wheel["force-include"]]
    copied = re.findall(r"^COPY (?!--)(.+) \./\S*$", DOCKERFILE, re.MULTILINE)
    ignored = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for source in sources:
        assert source in " ".join(copied).split()
        assert f"!{source}" in ignored
