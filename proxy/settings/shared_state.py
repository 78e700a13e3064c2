"""What replicas share: its settings, and what can be wrong with them together."""

import re
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from proxy.settings.models import Contradiction
from proxy.settings.sections import Section
from proxy.settings.values import Count, is_loopback, none_if_empty

_MOST_SECRETS, _SHORTEST_SECRET = 2, 16
_STATE_SCHEMES = ("valkey", "valkeys", "redis", "rediss", "unix")
_STATE_OPTIONS = {"namespace", "ssl_ca_certs"}


def _usable_state_url(url: SecretStr) -> SecretStr:
    """Refuse what is no address of a store; it may hold a password, so no message shows it."""
    parts = urlsplit(url.get_secret_value())
    is_socket = parts.scheme == "unix"
    if parts.scheme not in _STATE_SCHEMES or not (parts.path if is_socket else parts.hostname):
        raise ValueError("should be an address like valkey://127.0.0.1:6379, rediss:// or unix://")
    _ = parts.port  # raises ValueError when it is out of range
    if not is_socket and not re.fullmatch(r"/?|/\d+", parts.path):
        raise ValueError("may have the number of a database as its path, and nothing else")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - _STATE_OPTIONS - ({"db"} if is_socket else set())):
        raise ValueError(f"has no option {unknown[0]!r}; there are namespace and ssl_ca_certs")
    if not re.fullmatch(r"[A-Za-z0-9._:-]{1,64}", options.get("namespace", "temper")):
        raise ValueError("may have a namespace of 1 to 64 letters, digits, and . _ : -")
    return url


def _usable_secrets(secrets: SecretStr) -> SecretStr:
    """Refuse what could be guessed, and more than a new secret and the one before."""
    given = secrets.get_secret_value().split()
    if not 1 <= len(given) <= _MOST_SECRETS or min(map(len, given)) < _SHORTEST_SECRET:
        raise ValueError(
            f"should be one secret of at least {_SHORTEST_SECRET} characters, or two with a space "
            "between: the new one and the one before"
        )
    return secrets


StateUrl = Annotated[
    Annotated[SecretStr, AfterValidator(_usable_state_url)] | None, BeforeValidator(none_if_empty)
]
Secrets = Annotated[
    Annotated[SecretStr, AfterValidator(_usable_secrets)] | None, BeforeValidator(none_if_empty)
]


class State(Section):
    """What replicas share, in a Valkey or Redis: idempotency keys and responses.

    Needs the extra `state`.
    """

    url: StateUrl = Field(
        default=None,
        description="address of the store: valkey://, valkeys:// (TLS), redis://, rediss:// or "
        "unix://; ?namespace=NAME is the first part of every name there, else temper",
    )
    secret: Secrets = Field(
        default=None,
        description="seals what is kept there, alike for all replicas; required beyond loopback "
        "and sockets. A second one, behind a space, is the one before: it only opens",
    )
    timeout_ms: Count = Field(
        default=200, ge=10, le=10_000, description="longest wait for the store, in milliseconds"
    )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets, first the one that seals; an empty one where none is needed."""
        return ("",) if self.secret is None else (*self.secret.get_secret_value().split(),)


def state_contradictions(state: State) -> Iterator[Contradiction]:
    if state.url is not None and state.secret is None and not _is_here(state.url):
        yield (
            ("state.url", "state.secret"),
            "leads to another machine, so a secret is required that seals what is kept there: "
            "set state.secret (TEMPER_STATE__SECRET)",
        )


def _is_here(url: SecretStr) -> bool:
    parts = urlsplit(url.get_secret_value())
    return parts.scheme == "unix" or is_loopback(parts.hostname or "")
