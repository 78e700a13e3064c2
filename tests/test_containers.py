"""The image and the compose file, as far as they can be checked without a container engine."""

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

import jsonschema
import pytest
import yaml

from proxy.conversation.json import JsonObject, JsonValue
from proxy.settings import Settings

REPOSITORY = Path(__file__).parents[1]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
COMPOSE: JsonObject = yaml.safe_load(
    (REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8")
)

# The part of the compose specification that is used here, strictly: a misspelt key is an error.
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
    "properties": {
        "services": {"type": "object", "additionalProperties": SERVICE},
        "volumes": {"type": "object", "additionalProperties": {"type": "null"}},
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
    found = member(COMPOSE, "services")
    assert isinstance(found, dict)
    return found


def temper_services() -> list[str]:
    return [name for name, service in services().items() if "build" in json.dumps(service)]


class _Health(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
        """Keep quiet."""


class _Sick(_Health):
    status = 503


@contextmanager
def server_on_a_free_port(kind: type[_Health]) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
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
    arguments = [one.replace("8367", str(port)) for one in arguments]
    return subprocess.run([sys.executable, *arguments], check=False, capture_output=True).returncode


def test_the_image_is_small_and_runs_as_nobody_special() -> None:
    bases = [content for name, content in instructions() if name == "FROM"]
    assert all(base.startswith("python:3.12-slim") for base in bases)
    assert last("USER") not in {"root", "0"}
    order = [name for name, _ in instructions()]
    assert order.index("USER") < order.index("CMD")


def test_what_the_image_copies_exists_and_is_not_ignored() -> None:
    allowed = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for name, content in instructions():
        if name == "COPY" and not content.startswith("--from"):
            for source in content.split()[:-1]:
                assert (REPOSITORY / source).exists()
                assert f"!{source}" in allowed


def test_the_image_starts_a_command_that_is_installed_and_known() -> None:
    program, *arguments = command_in(last("CMD"))
    assert program in PROJECT["project"]["scripts"]
    asked = subprocess.run(
        [sys.executable, "-m", "proxy", *arguments, "--help"],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
    )
    assert asked.returncode == 0, asked.stderr


def test_the_health_check_passes_only_if_temper_is_well() -> None:
    with server_on_a_free_port(_Health) as port:
        assert health_check(port) == 0
    with server_on_a_free_port(_Sick) as port:
        assert health_check(port) != 0
    assert health_check(port) != 0


def test_the_health_check_looks_where_temper_listens() -> None:
    port = Settings().server.port
    assert last("EXPOSE") == str(port)
    assert f"'127.0.0.1', {port}" in last("HEALTHCHECK")


def test_the_compose_file_has_only_keys_that_compose_knows() -> None:
    jsonschema.validate(COMPOSE, COMPOSE_SCHEMA)


def test_a_misspelt_compose_key_would_be_found() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"services": {"a": {"build": ".", "port": []}}}, COMPOSE_SCHEMA)


@pytest.mark.parametrize("name", temper_services())
def test_temper_waits_for_a_healthy_backend_and_talks_to_it(name: str) -> None:
    service = services()[name]
    dependencies = member(service, "depends_on")
    assert isinstance(dependencies, dict)
    (backend,) = dependencies
    assert "healthcheck" in json.dumps(services()[backend])
    assert str(member(service, "environment", "TEMPER_BACKEND__URL")).startswith(
        f"http://{backend}:"
    )
    own, its = (json.dumps(services()[one]) for one in (name, backend))
    assert ('"profiles"' in own) == ('"profiles"' in its)


@pytest.mark.parametrize("name", temper_services())
def test_temper_gets_only_settings_that_exist_and_a_key_that_is_required(name: str) -> None:
    environment = member(services()[name], "environment")
    assert isinstance(environment, dict)
    for variable in environment:
        section, _, setting = variable.removeprefix("TEMPER_").lower().partition("__")
        assert setting in type(getattr(Settings(), section)).model_fields
    assert str(environment["TEMPER_SERVER__API_KEY"]).startswith("${TEMPER_SERVER__API_KEY:?")


def test_one_plain_start_brings_no_ollama() -> None:
    plain = [
        name for name, service in services().items() if '"profiles"' not in json.dumps(service)
    ]
    assert plain == ["temper", "llama-server"]


def test_named_volumes_are_declared() -> None:
    declared = member(COMPOSE, "volumes")
    assert isinstance(declared, dict)
    used = re.findall(r'"([a-z-]+):/[^/]', json.dumps(services()))
    assert set(used) == set(declared)


def test_the_image_gets_all_that_the_wheel_is_made_of() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    sources = [*wheel["packages"], *wheel["force-include"]]
    copied = re.findall(r"^COPY (?!--)(.+) \./\S*$", DOCKERFILE, re.MULTILINE)
    ignored = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for source in sources:
        assert source in " ".join(copied).split()
        assert f"!{source}" in ignored
