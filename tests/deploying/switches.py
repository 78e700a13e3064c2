"""For every value of the chart, a value other than the default, and its preconditions."""

from dataclasses import dataclass, field

from proxy.conversation.json import JsonObject, JsonValue
from tests.deploying.charts import SHAPES

MONITOR: JsonObject = {"monitor": {"enabled": True}}
ROUTE: JsonObject = {"httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}]}}
INGRESS: JsonObject = {"ingress": {"enabled": True}}
GROWING: JsonObject = {"autoscaling": {"enabled": True}}
RULE: JsonObject = {"ports": [{"port": 3128, "protocol": "TCP"}]}
PEER: JsonObject = {"namespaceSelector": {"matchLabels": {"name": "agents"}}}
STORE: JsonObject = {"config": {"state": {"url": "valkey://127.0.0.1:6379"}}}
TLS: JsonObject = {"secretName": "temper-tls", "hosts": ["temper.example.com"]}


@dataclass(frozen=True)
class Switch:
    """The `path` of a value, its new `value`, and other values `given` that the new value needs."""

    path: str
    value: JsonValue
    shape: str = "pool"
    given: JsonObject = field(default_factory=dict)

    @property
    def base(self) -> JsonObject:
        """The values of the pool or of the unit, before this value is replaced."""
        return SHAPES[self.shape]


def _of(shape: str, given: JsonObject, **values: JsonValue) -> list[Switch]:
    return [Switch(path.replace("__", "."), value, shape, given) for path, value in values.items()]


SWITCHES = [
    Switch("shape", "unit", "pool", {"engine": {"modelVolume": {"emptyDir": {}}}, "backends": []}),
    Switch("keyFromElsewhere", True, "pool", {"existingSecret": ""}),
    *_of(
        "pool",
        {},
        image__repository="registry.example.com:5000/temper",
        image__tag="main",
        image__pullPolicy="Always",
        imagePullSecrets=[{"name": "registry"}],
        replicas=3,
        backends=["https://engine.example.com/v1"],
        existingSecret="another",
        existingSecretKey="KEY",
        backendSecret="engine",
        config__server__grace_seconds=12.5,
        config__logging__format="text",
        listen="::",
        preStopSeconds=0,
        service__type="LoadBalancer",
        service__port=80,
        service__annotations={"example.com/internal": "true"},
        resources__requests__cpu="1",
        resources__requests__memory="512Mi",
        resources__limits__memory="2Gi",
    ),
    Switch("backendSecretKey", "token", "pool", {"backendSecret": "engine"}),
    Switch("stateSecret", "seal", "pool", STORE),
    Switch("stateSecretKey", "seal", "pool", {**STORE, "stateSecret": "seal"}),
    *_of(
        "unit",
        {},
        engine__image="registry.example.com/llama.cpp:server-cuda-b9999",
        engine__pullPolicy="Always",
        engine__model="qwen/qwen3-8b.gguf",
        engine__modelVolume={"hostPath": {"path": "/models", "type": "Directory"}},
        engine__slots=4,
        engine__contextTokens=32768,
        engine__port=9000,
        engine__extraArgs=["--flash-attn", "on"],
        engine__env=[{"name": "LLAMA_ARG_THREADS", "value": "8"}],
        engine__resources={"limits": {"nvidia.com/gpu": 1, "memory": "24Gi"}},
        engine__startSeconds=7,
        engine__securityContext={"readOnlyRootFilesystem": False},
        runtimeClassName="nvidia",
    ),
    *_of("unit", {}, autoscaling__enabled=True),
    *_of(
        "unit",
        GROWING,
        autoscaling__minReplicas=2,
        autoscaling__maxReplicas=9,
        autoscaling__metric="temper_load",
        autoscaling__target=1.5,
        autoscaling__scaleDownSeconds=60,
    ),
    *_of(
        "pool",
        {},
        podDisruptionBudget__enabled=False,
        podDisruptionBudget__minAvailable="50%",
        networkPolicy__enabled=False,
        networkPolicy__from=[PEER],
        networkPolicy__to=[{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        networkPolicy__extraEgress=[RULE],
        monitor__enabled=True,
        ingress__enabled=True,
    ),
    *_of(
        "pool",
        MONITOR,
        monitor__kind="PodMonitor",
        monitor__interval="1m30s",
        monitor__labels={"release": "prometheus"},
    ),
    Switch("httpRoute.enabled", True, "pool", {"httpRoute": {"parentRefs": [{"name": "main"}]}}),
    *_of(
        "pool",
        ROUTE,
        httpRoute__parentRefs=[{"name": "edge", "namespace": "gateways", "sectionName": "https"}],
        httpRoute__annotations={"example.com/owner": "models"},
        httpRoute__hostnames=["temper.example.com"],
    ),
    *_of(
        "pool",
        INGRESS,
        ingress__className="traefik",
        ingress__hosts=["temper.example.com", "models.example.com"],
        ingress__tls=[TLS],
    ),
    *(
        Switch(f"ingress.annotations.{name}", value, "pool", INGRESS)
        for name, value in {
            "proxy-buffering": "on",
            "proxy-request-buffering": "on",
            "proxy-body-size": "64m",
            "proxy-read-timeout": "60",
            "proxy-send-timeout": "60",
            "upstream-hash-by": "$remote_addr",
        }.items()
    ),
    *_of(
        "pool",
        {},
        nameOverride="proxy",
        fullnameOverride="tools",
        serviceAccountName="temper",
        podAnnotations={"example.com/team": "models"},
        podLabels={"team": "models"},
        nodeSelector={"kubernetes.io/arch": "amd64"},
        tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        affinity={"podAntiAffinity": {}},
        spread=False,
        priorityClassName="high",
        strategy={"type": "Recreate"},
        extraEnv=[{"name": "SEARCH_KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        extraVolumes=[{"name": "profiles", "configMap": {"name": "profiles"}}],
        extraVolumeMounts=[{"name": "tmp", "mountPath": "/var/cache"}],
    ),
]
ANNOTATION = "nginx.ingress.kubernetes.io/"
