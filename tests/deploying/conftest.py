"""Helm as a library, and the schemas of Kubernetes; skips tests without the extra `deploying`."""

import json
from collections.abc import Callable, Iterator, Mapping

import jsonschema
import pytest

from proxy.conversation.json import JsonObject
from tests.deploying.charts import KUBERNETES, Renders
from tests.deploying.config_schema import CHART
from tests.deploying.crds import SCHEMAS

_MISSING = "{} is missing: the extra `deploying` brings it"


@pytest.fixture(scope="session")
def render() -> Iterator[Renders]:
    """Render the chart as `helm template` does."""
    helm = pytest.importorskip("helm_python", reason=_MISSING.format("helm-python-sdk"))
    made: dict[str, Mapping[str, str]] = {}
    with helm.Chart.load(CHART) as chart:

        def once(values: JsonObject, *, name: str, namespace: str) -> Mapping[str, str]:
            cache_key = json.dumps([values, name, namespace])
            if cache_key not in made:
                made[cache_key] = chart.render(values, name=name, namespace=namespace)
            return made[cache_key]

        yield once


@pytest.fixture(scope="session")
def validate() -> Callable[[JsonObject], None]:
    """Check an object of Kubernetes strictly: a member that no schema knows is an error."""
    kubernetes = pytest.importorskip(
        "kubernetes_validate", reason=_MISSING.format("kubernetes-validate")
    )

    valid: set[str] = set()  # each validation parses megabytes of schemas

    def check(manifest: JsonObject) -> None:
        text = json.dumps(manifest)
        if text in valid:
            return
        schema = SCHEMAS.get(str(manifest["kind"]))
        if schema is None:
            kubernetes.validate(manifest, KUBERNETES, strict=True)
        else:
            jsonschema.validate(manifest, schema)
        valid.add(text)

    return check
