"""What the settings come to: how clients are served, and what was decided about profiles."""

import time
from collections.abc import Mapping

from proxy.api.app import ServerOptions
from proxy.api.keys import read_keys
from proxy.api.limits import Access, BodyLimits
from proxy.api.streaming import StreamTimeouts
from proxy.context.budget import BudgetMode
from proxy.context.replay import Rules
from proxy.dialects.openai_chat.workflow_rules import workflow_of
from proxy.dialects.openai_responses.store import Bounds, ResponseStore
from proxy.errors import InvalidConfiguration
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.guardrails.transcript import has_failed
from proxy.inference.preparation import Policy
from proxy.profiles.files import load_profiles
from proxy.serving.context_fitting import ContextPolicy, FittingMode, Strategy
from proxy.serving.profile_overrides import overrides_of
from proxy.settings import Settings, is_loopback
from proxy.settings.sections import Context as ContextSettings
from proxy.settings.sections import Guardrails as GuardrailsSettings
from proxy.settings.sections import Server as ServerSettings

OWN_KEY = "api_key"  # the owner of server.api_key
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def serving_of(settings: Settings) -> ServerOptions:
    """Translate the settings into what the application takes; raises InvalidConfiguration."""
    profiles = load_profiles(settings.profile.folder)
    guardrails, server = settings.guardrails, settings.server
    keys = _keys(server)
    operators = _operators(settings, keys)
    return ServerOptions(
        policy=Policy(
            mode=Mode(guardrails.mode),
            text_policy=_text_policy(guardrails),
            attempts=guardrails.max_attempts,
            is_strict=guardrails.strict,
            most_repeats=guardrails.max_repeats,
            most_rounds=guardrails.max_tool_rounds,
            streams_calls=guardrails.stream_calls,
        ),
        workflows={name: workflow_of(rules) for name, rules in settings.workflows.items()},
        timeouts=StreamTimeouts(
            keep_alive=server.keep_alive_seconds,
            deadline=settings.backend.deadline_seconds,
            grace=server.grace_seconds,
            load_wait=settings.backend.load_wait_seconds,
        ),
        context=_context(settings.context, _budget(settings)),
        profiles=profiles,
        overrides=overrides_of(settings.profile, profiles),
        access=Access(keys, _hosts(server)),
        origins=tuple(server.cors_origins),
        body=BodyLimits(server.max_body_bytes, server.body_seconds),
        max_waiting=server.max_waiting,
        patterns=tuple(settings.aliases.items()),
        parallel=settings.backend.parallel_requests or None,
        workers=server.workers,
        forwards_authorization=not keys,
        has_open_metrics=settings.metrics.open,
        operators=operators,
        has_read_only_ui=settings.ui.read_only,
    )


def response_store(settings: Settings) -> ResponseStore | None:
    """Make what keeps responses; None where none is to be kept, or several workers would have to.

    Which of them gets the next request is chance, so each would find its own responses only.
    """
    kept = settings.responses
    if kept.store == "off" or settings.server.workers > 1:
        return None
    bounds = Bounds(kept.store_responses, kept.store_bytes, kept.store_seconds)
    return ResponseStore(time.monotonic, bounds)


def _text_policy(settings: GuardrailsSettings) -> TextPolicy | None:
    """Read what prose is worth; None leaves it to the profile, as nobody said anything."""
    is_decided = "text_policy" in settings.model_fields_set
    return TextPolicy(settings.text_policy) if is_decided else None


def _keys(settings: ServerSettings) -> dict[str, str]:
    """Collect every key that opens the server, by the name of its owner."""
    keys = read_keys(settings.api_keys_file) if settings.api_keys_file is not None else {}
    own = settings.api_key
    return keys if own is None else {OWN_KEY: own.get_secret_value(), **keys}


def _operators(settings: Settings, keys: Mapping[str, str]) -> frozenset[str]:
    """Collect whose keys open the dashboard; raises `InvalidConfiguration` for a stranger."""
    own = settings.server.api_key
    is_own = own is not None and keys.get(OWN_KEY) == own.get_secret_value()
    strangers = [name for name in settings.ui.owners if name not in keys]
    if strangers:
        problem = f"{strangers[0]!r} has no key in server.api_keys_file"
        raise InvalidConfiguration("ui.owners", problem)
    return frozenset(settings.ui.owners) | ({OWN_KEY} if is_own else set())


def _hosts(settings: ServerSettings) -> frozenset[str] | None:
    """Collect the names that the server goes by; beyond loopback any, as there is a key."""
    allowed = frozenset(name.lower() for name in settings.allowed_hosts)
    if not allowed and not is_loopback(settings.host):
        return None
    return allowed | {*_LOOPBACK_NAMES, settings.host.strip("[]").lower()}


def _budget(settings: Settings) -> BudgetMode:
    """Decide how much of a running server's window counts; one we start is given what it gets."""
    is_ours = settings.model.source is not None
    return BudgetMode.BACKEND if is_ours else BudgetMode(settings.context.budget)


def _context(settings: ContextSettings, budget: BudgetMode) -> ContextPolicy:
    rules = Rules(
        has_failed,
        never_clear=frozenset(settings.never_clear),
        recent=settings.recent_groups,
        high=settings.high,
        low=settings.low,
    )
    return ContextPolicy(
        FittingMode(settings.compaction),
        Strategy(settings.strategy),
        settings.window_tokens or None,
        rules,
        budget,
    )
