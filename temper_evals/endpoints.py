"""Checks that a server answers at a URL, selects one of its models, and identifies it."""

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus

import httpx

from proxy.conversation import json
from proxy.errors import InvalidConfiguration
from proxy.profiles.known_model import KnownModel
from proxy.profiles.tuned import TunedSettings
from proxy.serving.assembly import service_options_of
from proxy.serving.opening import open_services
from proxy.settings import Settings
from temper_evals.loop import ModelTarget
from temper_evals.tuning import key_of

_SECONDS = 10.0
_UNNAMED = "default"
# Ollama lists `qwen3` as `qwen3:latest`
_LATEST = ":latest"


async def find_target(flag: str, url: str, model: str = "", api_key: str = "") -> ModelTarget:
    """Return the model of a server as a target; raises InvalidConfiguration for `flag`."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    if not url.startswith(("http://", "https://")):
        raise InvalidConfiguration(
            flag, f"{url!r} is not a URL: it must begin with http:// or https://"
        )
    # users paste the base URL of an OpenAI client, which ends in /v1
    url = url.rstrip("/").removesuffix("/v1")
    names = await _models_at(flag, url, headers)
    if not model and len(names) > 1:
        problem = f"{url} has several models: select one with --backend-model: {', '.join(names)}"
        raise InvalidConfiguration(flag, problem)
    if model and names and not {model, f"{model}{_LATEST}"} & {*names}:
        raise InvalidConfiguration(flag, f"{url} has no {model!r}; it has: {', '.join(names)}")
    return ModelTarget(url, model or next(iter(names), _UNNAMED), headers)


async def _models_at(flag: str, url: str, headers: Mapping[str, str]) -> list[str]:
    """List the models of a server; empty if its response is not a list of models.

    Raises InvalidConfiguration for a server that lists no model, or refuses the key.
    """
    try:
        async with httpx.AsyncClient(timeout=_SECONDS, trust_env=False) as client:
            answer = await client.get(f"{url}/v1/models", headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        problem = f"no server answers at {url} ({reason}): start the server, or correct the address"
        raise InvalidConfiguration(flag, problem) from error
    if answer.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        problem = f"{url} refuses the API key: set TEMPER_BACKEND__API_KEY to a valid one"
        raise InvalidConfiguration(flag, problem)
    try:
        document = json.parse(answer.content)
    except ValueError:
        return []
    if not isinstance(document, dict):
        return []
    entries = document.get("data")
    if answer.is_success and "data" in document and not entries:  # null: Ollama has no models
        raise InvalidConfiguration(flag, f"{url} has no models: load one there, then try again")
    models = entries if isinstance(entries, list) else []
    return [str(model["id"]) for model in models if isinstance(model, dict) and "id" in model]


async def look_up(settings: Settings, target: ModelTarget, kind: str) -> KnownModel:
    """Identify the model in the same way as `temper serve` does."""
    key = key_of(target) or None
    named = {**settings.backend.model_dump(exclude_unset=True), "url": target.url, "kind": kind}
    backend = type(settings.backend).model_validate({**named, "api_key": key})
    alone = Settings(backend=backend, profile=settings.profile)
    # without earlier tuned settings, which would hide the engine's own support for tools
    options = replace(service_options_of(alone), tuned=TunedSettings())
    async with open_services(alone, options, lambda _stage: None) as services:
        _, known = await services.identify(target.model)
    return known
