"""What the settings say about profiles, as the look-up of models takes it."""

import difflib

from proxy.errors import InvalidConfiguration
from proxy.guardrails.model_quirks import Replay
from proxy.profiles.known_model import Overrides
from proxy.profiles.profile import GENERIC, Profile
from proxy.settings.sections import Profile as ProfileSettings

_SWITCH = {"auto": None, "on": True, "off": False}


def overrides_of(
    settings: ProfileSettings, profiles: tuple[Profile, ...], setting: str = "profile.name"
) -> Overrides:
    """Translate what the operator decided about profiles; raises InvalidConfiguration.

    `setting` is the one that names the profile.
    """
    known = {profile.name: profile for profile in (*profiles, GENERIC)}
    if settings.name is not None and settings.name not in known:
        near = difflib.get_close_matches(settings.name, known, 1) or [GENERIC.name]
        problem = f"there is no profile {settings.name!r}; did you mean {near[0]!r}?"
        raise InvalidConfiguration(setting, f"{problem} 'temper models --known' lists all")
    convention, replay = settings.tools_in_prompt, settings.replay
    return Overrides(
        known[settings.name] if settings.name is not None else None,
        None if convention == "auto" else "" if convention == "never" else convention,
        None if replay == "auto" else Replay(replay),
        setting,
        _SWITCH[settings.thinking],
    )
