"""Small and strict schemas of the custom resources in the chart.

Kubernetes does not ship them. They contain only the fields that the chart uses, from the reference
of prometheus-operator (monitoring.coreos.com/v1) and of the Gateway API (v1).
"""

from proxy.conversation.json import JsonObject, JsonValue

TEXT: JsonValue = {"type": "string", "minLength": 1}
TEXTS: JsonValue = {"type": "object", "additionalProperties": TEXT}
NAME: JsonValue = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"}
# the duration formats of Prometheus and of GEP-2257
PROMETHEUS_DURATION: JsonValue = {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h|d|w|y))+$"}
GATEWAY_DURATION: JsonValue = {"type": "string", "pattern": r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"}


def closed(required: tuple[str, ...] = (), **properties: JsonValue) -> JsonObject:
    """Describe an object that has these members and no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [*required],
        "properties": {name.rstrip("_"): value for name, value in properties.items()},
    }


def items(of: JsonValue) -> JsonObject:
    """Describe a list that is not empty."""
    return {"type": "array", "minItems": 1, "items": of}


def resource(api: str, kind: str, spec: JsonValue) -> JsonObject:
    """Describe an object of Kubernetes."""
    metadata = closed(("name",), name=NAME, namespace=NAME, labels=TEXTS, annotations=TEXTS)
    return closed(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": api},
        kind={"const": kind},
        metadata=metadata,
        spec=spec,
    )


_CREDENTIALS = closed(("name", "key"), name=NAME, key=TEXT, optional={"type": "boolean"})
_ENDPOINTS = items(
    closed(
        ("port",),
        port=TEXT,
        path={"type": "string", "pattern": "^/"},
        interval=PROMETHEUS_DURATION,
        authorization=closed(("credentials",), type=TEXT, credentials=_CREDENTIALS),
    )
)
_SELECTOR = closed(("matchLabels",), matchLabels=TEXTS)
_RULE = closed(
    ("backendRefs",),
    backendRefs=items(closed(("name", "port"), name=NAME, port={"type": "integer", "minimum": 1})),
    timeouts=closed(request=GATEWAY_DURATION, backendRequest=GATEWAY_DURATION),
)
_PARENT = closed(("name",), name=NAME, namespace=NAME, sectionName=TEXT, port={"type": "integer"})

SCHEMAS: dict[str, JsonObject] = {
    "ServiceMonitor": resource(
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        closed(("selector", "endpoints"), selector=_SELECTOR, endpoints=_ENDPOINTS),
    ),
    "PodMonitor": resource(
        "monitoring.coreos.com/v1",
        "PodMonitor",
        closed(
            ("selector", "podMetricsEndpoints"), selector=_SELECTOR, podMetricsEndpoints=_ENDPOINTS
        ),
    ),
    "HTTPRoute": resource(
        "gateway.networking.k8s.io/v1",
        "HTTPRoute",
        closed(
            ("parentRefs", "rules"),
            parentRefs=items(_PARENT),
            hostnames=items(TEXT),
            rules=items(_RULE),
        ),
    ),
}
