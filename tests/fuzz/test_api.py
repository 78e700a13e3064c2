"""Arbitrary requests to the documented endpoints get a documented response, and never a 5xx.

With HYPOTHESIS_PROFILE=searching, the tests run for a long time.
"""

import asyncio
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Protocol, TypedDict, cast

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from jsonschema_rs import Draft202012Validator
from schemathesis import GenerationMode

from proxy.api.app import ServerOptions, create_app
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.observability.metrics import Metrics
from proxy.observability.observers import Observers
from tests.examples import examples
from tests.fuzz.requests import FRONTS, RepeatingBackend

FEW = 15  # an example takes 0.1 s to make
MOST = settings.default.max_examples if settings.default is not None else FEW
EXAMPLES = examples(FEW) if MOST <= 100 else MOST

SERVING = ServerOptions()
APP = create_app(
    SERVING.services_for(RepeatingBackend(counts=[9])), SERVING, Observers(meter=Metrics())
)
DOCUMENT = APP.app.openapi()
PATHS = cast("dict[str, dict[str, JsonObject]]", DOCUMENT["paths"])
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
# A request to these paths cannot be wrong, because they have no parameters.
PLAIN = {"/v1/models", "/healthz", "/readyz", "/health", "/metrics"}
ASKED = [(path, method) for path in PATHS for method in PATHS[path] if path not in PLAIN]
# Any text is a valid name of a model or of a response in a path, so only bodies can be wrong.
WAYS = [
    (path, method, mode)
    for (path, method), mode in product(ASKED, GenerationMode)
    if "requestBody" in PATHS[path][method] or mode is GenerationMode.POSITIVE
]


class Case(Protocol):
    """A request that schemathesis made."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...

    def as_transport_kwargs(self, base_url: str) -> Mapping[str, object]: ...


class SentRequest(TypedDict, total=False):
    """The request of a case."""

    method: str
    url: str
    params: dict[str, str]
    headers: dict[str, str]
    json: JsonValue
    data: bytes


class Send(Protocol):
    """Sends one request and reads the whole answer."""

    def __call__(self, case: Case) -> httpx.Response: ...


@pytest.fixture(scope="module")
def send() -> Iterator[Send]:
    transport = httpx.ASGITransport(APP)
    with asyncio.Runner() as runner:
        client = httpx.AsyncClient(transport=transport, base_url="http://temper")

        def send_one(case: Case) -> httpx.Response:
            sent = cast("SentRequest", case.as_transport_kwargs(base_url="http://temper"))
            request = client.build_request(
                sent["method"],
                sent["url"],
                params=sent["params"],
                headers=sent["headers"],
                content=json.dump(sent["json"]) if "json" in sent else sent.get("data"),
            )
            return runner.run(client.send(request))

        yield send_one
        runner.run(client.aclose())


def is_of(schema: JsonValue, value: JsonValue) -> bool:
    """Return whether a value satisfies a schema of the document."""
    return Draft202012Validator({**cast("JsonObject", schema), **DOCUMENT}).is_valid(value)


def content_of(response: httpx.Response, case: Case) -> tuple[str, JsonValue]:
    """Return the content type of a response and its schema; both must be documented."""
    responses = cast("JsonObject", PATHS[case.path][case.method.lower()]["responses"])
    described = cast("JsonObject", responses.get(str(response.status_code), responses["default"]))
    if "$ref" in described:
        components = cast("JsonObject", DOCUMENT["components"])
        name = str(described["$ref"]).rpartition("/")[2]
        described = cast("JsonObject", cast("JsonObject", components["responses"])[name])
    kind = response.headers["content-type"].partition(";")[0]
    return kind, cast("dict[str, JsonObject]", described["content"])[kind].get("schema", {})


def check(response: httpx.Response, case: Case) -> None:
    """Check the invariants of every response."""
    assert response.status_code < 500
    kind, schema = content_of(response, case)
    if kind == "text/event-stream":
        assert FRONTS.of(case.path).is_complete(response.content)
    elif kind == "application/json":
        body = json.parse(response.content)
        assert is_of(schema, body), body
        if response.status_code == 400 and "requestBody" in PATHS[case.path][case.method.lower()]:
            error = cast("dict[str, JsonObject | str]", body)["error"]
            if isinstance(error, str):  # Ollama's format: the message begins with the field
                error = {"message": error}
            field = str(error.get("param") or str(error["message"]).partition(":")[0])
            assert field, error
            assert error.get("code") or str(error["message"]).startswith(field)


@pytest.mark.parametrize(("path", "method", "mode"), WAYS)
def test_a_random_request_gets_a_documented_response(
    path: str, method: str, mode: GenerationMode, send: Send
) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(SCHEMA[path][method].as_strategy(mode))
    def answers(case: Case) -> None:
        response = send(case)
        check(response, case)
        statuses.add(response.status_code)

    statuses: set[int] = set()
    answers()
    # The schemas of the other dialects do not constrain content blocks and items, so Temper rejects
    # nearly all that are generated.
    is_described = "requestBody" in PATHS[path][method] and FRONTS.of(path).name == "chat"
    assert statuses <= ({200, 400} if method == "post" else {200, 404})
    assert 400 in statuses or mode is GenerationMode.POSITIVE
    assert 200 in statuses or mode is GenerationMode.NEGATIVE or not is_described


@pytest.mark.parametrize("path", sorted(PLAIN))
def test_a_request_to_a_path_without_parameters_gets_a_documented_200(
    path: str, send: Send
) -> None:
    case = SCHEMA[path]["get"].Case()
    response = send(case)
    check(response, case)
    assert response.status_code == 200
