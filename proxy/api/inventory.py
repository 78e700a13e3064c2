"""The models that could be asked, each with its profile: what `temper models` shows."""

from proxy.api.assembly import wishes_of
from proxy.api.opening import nothing_to_serve, open_backend, server_urls
from proxy.api.own_server import introduce_file, model_file
from proxy.api.recognition import KnownModel, KnownModels
from proxy.api.windows import usable_by
from proxy.errors import LaunchFailed
from proxy.hardware.snapshot import snapshot
from proxy.hardware.summary import Prospect
from proxy.processes.launch import check_model_file, find_program
from proxy.profiles.files import load_profiles
from proxy.profiles.recognition import Recognition
from proxy.settings import Settings


async def served_models(settings: Settings) -> tuple[KnownModel, ...]:
    """Ask the running server for its models, or look into the file; nothing is started.

    Raises `InvalidConfiguration`, `LaunchFailed` and `BackendFailed` kinds of errors.
    """
    if not server_urls(settings):
        own = settings.model
        if own.source is None:
            raise nothing_to_serve()
        if own.path is not None:
            check_model_file(own.path)
        return (introduce_file(settings, own, model_file(own)),)
    profiles = load_profiles(settings.profile.folder)
    wishes = wishes_of(settings.profile, profiles)
    async with open_backend(settings, lambda _stage: None) as backend:
        known = KnownModels(backend, profiles, wishes)
        return tuple([await known.look_up(model.id) for model in await backend.models()])


def prospect_of(settings: Settings) -> Prospect | None:
    """Tell what the model in the configured file needs, and what there is for it at the moment.

    None where there is no file or it does not say what it needs.
    """
    if server_urls(settings):
        return None
    own = settings.model
    shape = model_file(own).shape
    if shape is None:
        return None
    try:
        program = find_program(own.server)
    except LaunchFailed:  # nothing could be started yet
        return Prospect(shape, snapshot(), own.slots)
    return Prospect(shape, usable_by(program, snapshot()), own.slots)


def known_profiles(settings: Settings) -> tuple[KnownModel, ...]:
    """List every profile as if it were a model, with the names that lead to it as the reason."""
    return tuple(
        KnownModel(
            profile.name,
            Recognition(profile, ", ".join(profile.matching.names) or "recognised by no name"),
            profile.traits,
        )
        for profile in load_profiles(settings.profile.folder)
    )
