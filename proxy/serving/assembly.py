"""Translates the settings into policies: guardrails, recognition of models, context fitting."""

import difflib
from functools import partial

from proxy.context.replay import Rules
from proxy.conversation.failures import has_failed
from proxy.errors import InvalidConfiguration
from proxy.guardrails.close_out import CloseOut
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.inference.plan import Policy
from proxy.profiles.files import load_profiles
from proxy.profiles.known_model import Overrides
from proxy.profiles.profile import GENERIC, Profile
from proxy.profiles.tried_models import TriedModels, cache_folder
from proxy.profiles.tuned import Tuned, TunedSettings
from proxy.serving.context_fitting import ContextPolicy, FittingMode
from proxy.serving.services import ServiceOptions
from proxy.settings import Settings
from proxy.settings.sections import Guardrails
from proxy.settings.sections import Profile as ProfileSettings

_SWITCH = {"auto": None, "on": True, "off": False}  # None: the profile decides


def overrides_of(
    settings: ProfileSettings, profiles: tuple[Profile, ...], setting: str = "profile.name"
) -> Overrides:
    """Translate the operator's profile settings; raises InvalidConfiguration.

    `setting` is the name of the setting that selects the profile, for error messages.
    """
    known = {profile.name: profile for profile in (*profiles, GENERIC)}
    if settings.name is not None and settings.name not in known:
        similar = difflib.get_close_matches(settings.name, known, 1) or [GENERIC.name]
        problem = f"unknown profile {settings.name!r}; did you mean {similar[0]!r}?"
        raise InvalidConfiguration(setting, f"{problem} 'temper models --known' lists all profiles")
    convention, replay = settings.tools_in_prompt, settings.replay
    return Overrides(
        known[settings.name] if settings.name is not None else None,
        # None: the profile decides; "": never describe tools in the prompt
        None if convention == "auto" else "" if convention == "never" else convention,
        None if replay == "auto" else replay,
        setting,
        _SWITCH[settings.thinking],
        "" if settings.effort == "auto" else settings.effort,
    )


def service_options_of(settings: Settings) -> ServiceOptions:
    """Translate the settings of services; raises InvalidConfiguration."""
    profiles = load_profiles(settings.profile.folder)
    return ServiceOptions(
        profiles=profiles,
        overrides=overrides_of(settings.profile, profiles),
        context=_context(settings),
        max_waiting=settings.server.max_waiting,
        patterns=tuple(settings.aliases.items()),
        parallel=settings.backend.parallel_requests or None,
        tried=TriedModels(cache_folder()),
        tuned=TunedSettings(cache_folder(kind="tuned"), partial(tuned_changes, settings)),
    )


def policy_of(settings: Settings) -> Policy:
    guardrails = settings.guardrails
    has_text_policy = "text_policy" in guardrails.model_fields_set
    return Policy(
        mode=Mode(guardrails.mode),
        # None: the profile decides, because the operator did not set it
        text_policy=TextPolicy(guardrails.text_policy) if has_text_policy else None,
        attempts=guardrails.max_attempts,
        is_strict=guardrails.strict or guardrails.exhausted == "error",
        explains=guardrails.exhausted == "explain",
        most_repeats=guardrails.max_repeats,
        most_rounds=guardrails.max_tool_rounds,
        streams_calls=guardrails.stream_calls,
        most_failures=guardrails.max_failed_rounds,
        without=frozenset(guardrails.without),
        close_out=CloseOut(guardrails.close_out),
        close_out_tries=guardrails.close_out_tries,
    )


def tuned_changes(settings: Settings, tuned: Tuned) -> Tuned:
    """Return the tuned settings that the operator has not set; raises ValueError."""
    explicit = settings.guardrails.model_dump(exclude_unset=True)
    tuned_values = tuned.get("guardrails", {})
    merged = Guardrails.model_validate({**tuned_values, **explicit})
    policy = policy_of(settings.model_copy(update={"guardrails": merged}))
    changes = {
        "guardrails": {name: getattr(policy, name) for name in tuned_values if name not in explicit}
    }
    explicit_names = settings.profile.model_fields_set
    profile = ProfileSettings.model_validate(tuned.get("profile", {})).model_dump(
        exclude_unset=True
    )
    changes["profile"] = {
        name: value for name, value in profile.items() if name not in explicit_names
    }
    return {section: values for section, values in changes.items() if values}


def _context(all_settings: Settings) -> ContextPolicy:
    settings = all_settings.context
    is_managed = all_settings.model.source is not None
    is_disabled = "compaction" in all_settings.guardrails.without
    rules = Rules(
        has_failed,
        never_clear=frozenset(settings.never_clear),
        recent=settings.recent_groups,
        high=settings.high,
        low=settings.low,
        # Counted prompts use the whole budget (decision 0020), unless the operator sets
        # context.high.
        high_counted=settings.high if "high" in settings.model_fields_set else 1.0,
    )
    return ContextPolicy(
        FittingMode.OFF if is_disabled else FittingMode(settings.compaction),
        settings.strategy,
        settings.window_tokens or None,
        rules,
        # `choose_window` has already applied the budget when it set the window of a managed server
        "backend" if is_managed else settings.budget,
        settings.reread_seconds,
    )
