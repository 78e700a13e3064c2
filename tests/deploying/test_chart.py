"""The guarantees of the chart: keys, probes, graceful shutdown, and pods without privileges."""

import json
import re
from collections.abc import Callable
from copy import deepcopy

import jsonschema
import pytest

from proxy.conversation.json import JsonObject, JsonValue
from tests.deploying.charts import POOL, SHAPES, UNIT, Renders, at_path, merged, rendered
from tests.deploying.config_schema import CHART
from tests.deploying.crds import SCHEMAS
from tests.deploying.switches import INGRESS, MONITOR, ROUTE

pytestmark = pytest.mark.deploying

Validate = Callable[[JsonObject], None]
BOTH = pytest.mark.parametrize("shape", ["pool", "unit"])
ADDRESS = "http://127.0.0.1:8080"


def containers(values: JsonObject, render: Renders) -> list[JsonObject]:
    pod = rendered(render, values).pod()
    assert isinstance(pod, dict)
    both = (pod.get("initContainers", []), pod["containers"])
    return [
        item for some in both if isinstance(some, list) for item in some if isinstance(item, dict)
    ]


@BOTH
def test_helm_lint_accepts_the_chart(shape: str) -> None:
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is missing")
    report = helm.lint(CHART, SHAPES[shape], strict=True, kube_version="v1.37.0")
    assert report["errors"] == []
    assert [message["error"] for message in report["messages"]] == ["icon is recommended"]


@BOTH
def test_chart_requires_a_key(shape: str, render: Renders) -> None:
    keyless = merged(SHAPES[shape], {"existingSecret": ""})
    message = r"(?s)existingSecret is empty.*kubectl create secret.*keyFromElsewhere"
    with pytest.raises(Exception, match=message):
        rendered(render, keyless)


@BOTH
def test_the_api_key_is_mounted_as_a_file_and_in_no_environment_variable(
    shape: str, render: Renders
) -> None:
    chart = rendered(render, merged(SHAPES[shape], {"existingSecretKey": "temper.key"}))
    assert chart.environment()["TEMPER_SERVER__API_KEY_FILE"] == "/run/secrets/temper/api-key"
    volumes = chart.pod("volumes")
    assert isinstance(volumes, list)
    (keys,) = [
        volume for volume in volumes if isinstance(volume, dict) and volume["name"] == "keys"
    ]
    assert '"items": [{"key": "temper.key", "path": "api-key"}]' in json.dumps(keys)
    assert not any(name.endswith("API_KEY") for name in chart.environment())
    assert "Secret" not in chart.objects


def probes(values: JsonObject, render: Renders) -> dict[str, JsonValue]:
    chart = rendered(render, values)
    return {
        name: chart.pod("containers", 0, f"{name}Probe", "httpGet", "path")
        for name in ("liveness", "readiness", "startup")
    }


def test_a_pool_stays_reachable_while_its_engines_are_down(render: Renders) -> None:
    assert set(probes(POOL, render).values()) == {"/healthz"}


def test_a_unit_is_ready_when_its_model_is_loaded_and_has_time_to_load_it(render: Renders) -> None:
    values = merged(UNIT, {"engine": {"startSeconds": 601}})
    assert probes(values, render) == {
        "liveness": "/healthz",
        "readiness": "/readyz",
        "startup": "/health",
    }
    _, temper = containers(values, render)
    assert isinstance(temper["startupProbe"], dict)
    assert temper["startupProbe"]["failureThreshold"] == 121
    assert temper["startupProbe"]["periodSeconds"] == 5


def test_only_temper_can_reach_the_engine_of_a_unit(render: Renders) -> None:
    engine, temper = containers(merged(UNIT, {"engine": {"port": 9001, "slots": 3}}), render)
    arguments = engine["args"]
    assert isinstance(arguments, list)
    pairs = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert pairs == {
        "--model": "/models/model.gguf",
        "--host": "127.0.0.1",
        "--port": "9001",
        "--parallel": "3",
        "--ctx-size": str(3 * 8192),
    }
    assert "ports" not in engine
    chart = rendered(render, merged(UNIT, {"engine": {"port": 9001}}))
    assert 'url = "http://127.0.0.1:9001"' in chart.toml()
    assert temper["name"] == "temper"


def test_the_engine_stops_after_its_running_requests(render: Renders) -> None:
    engine, _ = containers(UNIT, render)
    assert engine["restartPolicy"] == "Always"  # Kubernetes stops a sidecar after Temper


@pytest.mark.parametrize(
    ("grace", "sleep", "whole"), [(300, 5, 315), (12.5, 0, 23), (0, 20, 30), (None, 5, 25)]
)
def test_grace_period_covers_running_requests(
    grace: float | None, sleep: int, whole: int, render: Renders
) -> None:
    server: JsonObject = {"server": {"grace_seconds": grace}}
    chart = rendered(render, merged(POOL, {"config": server, "preStopSeconds": sleep}))
    assert chart.pod("terminationGracePeriodSeconds") == whole
    lifecycle = chart.pod("containers", 0)
    assert isinstance(lifecycle, dict)
    expected = {"preStop": {"sleep": {"seconds": sleep}}}
    assert lifecycle.get("lifecycle") == (expected if sleep else None)


@BOTH
def test_containers_have_no_privileges(shape: str, render: Renders) -> None:
    chart = rendered(render, SHAPES[shape])
    assert chart.pod("securityContext", "runAsNonRoot") is True
    assert chart.pod("securityContext", "runAsUser") == 10001
    assert chart.pod("securityContext", "seccompProfile") == {"type": "RuntimeDefault"}
    assert chart.pod("automountServiceAccountToken") is False
    assert chart.pod("enableServiceLinks") is False
    for container in containers(SHAPES[shape], render):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        assert '"mountPath": "/tmp"' in json.dumps(container)


def test_only_a_changed_configuration_replaces_the_pods(render: Renders) -> None:
    def checksum(*others: JsonObject) -> JsonValue:
        chart = rendered(render, merged(POOL, *others))
        path = ("spec", "template", "metadata", "annotations", "checksum/config")
        return chart.at("Deployment", *path)

    assert checksum() == checksum({"replicas": 5, "monitor": {"enabled": True}})
    assert checksum() != checksum(at_path("config.guardrails.strict", True))
    assert checksum() != checksum({"backends": ["http://other:8000"]})


def test_egress_allows_dns_and_configured_targets(render: Renders) -> None:
    config: JsonObject = {
        "models": {
            "a": {"urls": ["http://a:8000/v1", "https://b.example.com/v1"]},
            "b": {"url": "http://user@[fd00::1]:9000"},
            "c": {"url": "http://127.0.0.1:1"},
            "d": {"url": "http://${ENGINE}:2"},
        },
        "mcp": {"s": {"url": "http://search/mcp", "tools": ["*"]}},
        "tracing": {"url": "http://otel:4318"},
        "state": {"url": "rediss://store.example.com"},
    }
    values: JsonObject = {"existingSecret": "key", "config": config}
    egress = rendered(render, values).at("NetworkPolicy", "spec", "egress")
    assert isinstance(egress, list)
    ports = re.findall(r'"port": (\d+)', json.dumps(egress))
    assert sorted(map(int, ports)) == [53, 53, 80, 443, 4318, 6379, 8000, 9000]
    only_names = rendered(render, UNIT).at("NetworkPolicy", "spec", "egress")
    assert re.findall(r'"port": (\d+)', json.dumps(only_names)) == ["53", "53"]


def test_a_chart_with_one_pod_has_no_disruption_budget(render: Renders) -> None:
    assert "PodDisruptionBudget" in rendered(render, POOL).objects
    assert "PodDisruptionBudget" not in rendered(render, UNIT).objects
    chart = rendered(render, merged(POOL, {"replicas": 1}))
    assert "PodDisruptionBudget" not in chart.objects
    assert "There may be only one pod" in chart.notes
    growing: JsonObject = {"autoscaling": {"enabled": True, "minReplicas": 2}}
    assert "PodDisruptionBudget" in rendered(render, merged(UNIT, growing)).objects


def test_the_autoscaler_of_units_uses_running_requests_and_shrinks_slowly(render: Renders) -> None:
    values = merged(UNIT, {"autoscaling": {"enabled": True}, "engine": {"slots": 6}})
    chart = rendered(render, values)
    assert chart.at("HorizontalPodAutoscaler", "spec", "metrics", 0, "pods") == {
        "metric": {"name": "temper_requests_in_flight"},
        "target": {"type": "AverageValue", "averageValue": "6"},
    }
    behavior = chart.at("HorizontalPodAutoscaler", "spec", "behavior", "scaleDown")
    assert behavior == {"stabilizationWindowSeconds": 600}
    deployment = chart.at("Deployment", "spec")
    assert isinstance(deployment, dict)
    assert "replicas" not in deployment
    assert rendered(render, POOL).at("Deployment", "spec", "replicas") == 2
    assert rendered(render, UNIT).at("Deployment", "spec", "replicas") == 1


@pytest.mark.parametrize(
    ("kind", "endpoints"), [("ServiceMonitor", "endpoints"), ("PodMonitor", "podMetricsEndpoints")]
)
def test_the_prometheus_monitor_sends_the_api_key(
    kind: str, endpoints: str, render: Renders
) -> None:
    chart = rendered(render, merged(POOL, MONITOR, {"monitor": {"kind": kind}}))
    credentials = chart.at(kind, "spec", endpoints, 0, "authorization", "credentials")
    assert credentials == {"name": "temper-key", "key": "api-key"}
    elsewhere: JsonObject = {"existingSecret": "", "keyFromElsewhere": True}
    chart = rendered(render, merged(POOL, MONITOR, {"monitor": {"kind": kind}}, elsewhere))
    assert "authorization" not in json.dumps(chart.at(kind, "spec"))


def test_routes_have_long_timeouts_and_no_buffering(render: Renders) -> None:
    chart = rendered(render, merged(POOL, ROUTE, INGRESS))
    assert chart.at("HTTPRoute", "spec", "rules", 0) == {
        "backendRefs": [{"name": "temper", "port": 8367}],
        "timeouts": {"request": "0s", "backendRequest": "0s"},
    }
    annotations = json.dumps(chart.at("Ingress", "metadata", "annotations"))
    assert '/proxy-buffering": "off"' in annotations
    assert '/upstream-hash-by": "$http_x_session_id"' in annotations


@BOTH
def test_the_notes_of_the_chart_contain_the_commands_to_access_temper(
    shape: str, render: Renders
) -> None:
    chart = rendered(render, merged(SHAPES[shape], {"fullnameOverride": "tools"}))
    assert "Temper answers as tools.ai:8367/v1" in chart.notes
    assert "temper-key under api-key" in chart.notes
    assert ("x-session-id" in chart.notes) == (shape == "unit")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replica": 3}, "additional properties 'replica' not allowed"),
        ({"replicas": "3"}, "at '/replicas': got string, want null or integer"),
        ({"shape": "sidecar"}, "at '/shape': value must be one of 'pool', 'unit'"),
        ({"backends": ["vllm:8000"]}, "at '/backends/0': 'vllm:8000' does not match pattern"),
        ({"config": {"server": {"grace_second": 1}}}, "'grace_second' not allowed"),
        ({"config": {"server": {"port": 80}}}, "'port' not allowed"),
        ({"config": {"server": {"api_key": "sk-1"}}}, "at '/config/server/api_key': 'sk-1' does"),
        ({"config": {"guardrails": {"mode": "auto"}}}, "must be one of 'on', 'observe', 'off'"),
        ({"config": {"sever": {}}}, "at '/config': additional properties 'sever' not allowed"),
        ({"httpRoute": {"enabled": True}}, "at '/httpRoute/parentRefs': minItems: got 0, want 1"),
        ({"engine": {"port": 8367}}, "at '/engine/port': 'not' failed"),
        ({"monitor": {"interval": "30"}}, "at '/monitor/interval': '30' does not match"),
    ],
)
def test_the_error_for_an_invalid_value_names_the_value(
    values: JsonObject, message: str, render: Renders
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        rendered(render, merged(POOL, values))


@pytest.mark.parametrize(
    ("shape", "values", "message"),
    [
        ("pool", {"backends": []}, "a pool needs engines"),
        ("pool", {"config": {"backend": {"url": ADDRESS}}}, "name the engines in one place"),
        ("pool", {"config": {"model": {"path": "/m.gguf"}}}, "Temper's image holds none"),
        ("pool", {"autoscaling": {"enabled": True}}, "autoscaling is for shape=unit"),
        ("pool", {"keyFromElsewhere": True}, "contradict each other"),
        ("pool", {"stateSecret": "seal"}, "seals what is kept at config.state.url"),
        ("unit", {"backends": [ADDRESS]}, "a unit has an engine of its own"),
        ("unit", {"engine": {"modelVolume": None}}, "engine.modelVolume is empty"),
        ("unit", {"autoscaling": {"enabled": True, "minReplicas": 5}}, "more than autoscaling.max"),
    ],
)
def test_contradictory_values_are_rejected(
    shape: str, values: JsonObject, message: str, render: Renders
) -> None:
    with pytest.raises(Exception, match=re.escape(message)):
        rendered(render, merged(SHAPES[shape], values))


def test_kubernetes_schemas_detect_a_misspelled_member(render: Renders, validate: Validate) -> None:
    deployment = deepcopy(rendered(render, POOL).objects["Deployment"])
    validate(deployment)
    assert isinstance(deployment["spec"], dict)
    deployment["spec"]["replica"] = deployment["spec"].pop("replicas")
    with pytest.raises(jsonschema.ValidationError, match="replica"):
        validate(deployment)


@BOTH
def test_manifests_are_valid_for_the_oldest_supported_kubernetes(
    shape: str, render: Renders
) -> None:
    kubernetes = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is missing")
    oldest = re.search(r"kubeVersion: \">=(\d+\.\d+)", (CHART / "Chart.yaml").read_text("utf-8"))
    assert oldest
    chart = rendered(render, merged(SHAPES[shape], INGRESS, {"replicas": 2}))
    for manifest in chart.objects.values():
        assert kubernetes.validate(manifest, oldest[1], strict=True) == oldest[1]
    with pytest.raises(jsonschema.ValidationError, match=r"preStop|sleep|lifecycle"):
        kubernetes.validate(chart.objects["Deployment"], "1.28", strict=True)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_schemas_of_custom_resources_detect_a_misspelled_member(
    kind: str, render: Renders, validate: Validate
) -> None:
    monitor = "PodMonitor" if kind == "PodMonitor" else "ServiceMonitor"
    values = merged(POOL, ROUTE, MONITOR, at_path("monitor.kind", monitor))
    manifest = deepcopy(rendered(render, values).objects[kind])
    validate(manifest)
    assert isinstance(manifest["spec"], dict)
    manifest["spec"]["rule"] = []
    with pytest.raises(jsonschema.ValidationError, match="rule"):
        validate(manifest)
