"""Translates the settings for the HTTP edge: access, timeouts and sizes."""

from collections.abc import Mapping
from dataclasses import fields

from proxy.api.app import ReasoningMode, ServerOptions
from proxy.api.edge import Access
from proxy.api.keys import read_keys
from proxy.api.request_reader import BodyLimits
from proxy.api.streaming import StreamTimeouts
from proxy.errors import InvalidConfiguration
from proxy.serving.admission import Priority
from proxy.serving.assembly import policy_of, service_options_of
from proxy.settings import Settings, is_loopback
from proxy.settings.sections import Server as ServerSettings

OWN_KEY = "api_key"  # the owner of server.api_key


def server_options_of(settings: Settings) -> ServerOptions:
    """Translate the settings into options; raises InvalidConfiguration."""
    services, server = service_options_of(settings), settings.server
    keys = _keys(server)
    return ServerOptions(
        **{item.name: getattr(services, item.name) for item in fields(services)},
        policy=policy_of(settings),
        workflows=settings.workflows,
        priorities={name: Priority(word) for name, word in server.priorities.items()},
        timeouts=StreamTimeouts(
            keep_alive=server.keep_alive_seconds,
            deadline=settings.backend.deadline_seconds,
            grace=server.grace_seconds,
            load_wait=settings.backend.load_wait_seconds,
        ),
        access=Access(keys, _hosts(server)),
        origins=tuple(server.cors_origins),
        body=BodyLimits(server.max_body_bytes, server.body_seconds),
        workers=server.workers,
        replicas=settings.backend.replicas,
        # if the server itself has no keys, a client's key is meant for the backend
        forwards_authorization=not keys,
        has_open_metrics=settings.metrics.open,
        operators=_operators(settings, keys),
        ollama_port=server.ollama_port,
        has_read_only_ui=settings.ui.read_only,
        reasoning=_reasoning(settings),
    )


def _reasoning(settings: Settings) -> ReasoningMode:
    """Return context.reasoning; if replicas share a store, `auto` becomes `off`.

    The next request of a conversation may then reach another replica, and only the first replica
    has stored the reasoning.
    """
    mode = settings.context.reasoning
    return "off" if mode == "auto" and settings.state.url is not None else mode


def _keys(settings: ServerSettings) -> dict[str, str]:
    """Collect every accepted API key by the name of its owner."""
    keys = read_keys(settings.api_keys_file) if settings.api_keys_file is not None else {}
    key = settings.api_key
    return keys if key is None else {OWN_KEY: key.get_secret_value(), **keys}


def _operators(settings: Settings, keys: Mapping[str, str]) -> frozenset[str]:
    """Return the owners of keys that may open the dashboard; raises `InvalidConfiguration`."""
    key = settings.server.api_key
    # if an owner in the file is also named "api_key", that owner's key replaces server.api_key
    is_own = key is not None and keys.get(OWN_KEY) == key.get_secret_value()
    unknown_owners = [name for name in settings.ui.owners if name not in keys]
    if unknown_owners:
        problem = f"{unknown_owners[0]!r} has no key: add it to server.api_keys_file"
        raise InvalidConfiguration("ui.owners", problem)
    return frozenset(settings.ui.owners) | ({OWN_KEY} if is_own else set())


def _hosts(settings: ServerSettings) -> frozenset[str] | None:
    """Return the accepted host names; None accepts any name.

    The check of the name protects against DNS rebinding. If the server does not listen on loopback,
    it requires a key instead: a foreign web page has no key.
    """
    allowed = frozenset(name.lower() for name in settings.allowed_hosts)
    if not allowed and not is_loopback(settings.host):
        return None
    return allowed | {"localhost", "127.0.0.1", "::1", settings.host.strip("[]").lower()}
