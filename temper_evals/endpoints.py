"""Servers that run already: whether one answers at a URL, and which of its models is meant."""

import httpx

from proxy.conversation import json
from proxy.errors import InvalidConfiguration
from temper_evals.loop import ModelTarget

_SECONDS = 10.0
_UNNAMED = "default"
_LATEST = ":latest"


async def find_target(flag: str, url: str, model: str = "") -> ModelTarget:
    """Return the model of a server as a target; raises InvalidConfiguration that names a flag."""
    if not url.startswith(("http://", "https://")):
        raise InvalidConfiguration(flag, f"{url!r} is no URL: it begins with http:// or https://")
    url = url.rstrip("/").removesuffix("/v1")
    names = await _models_at(flag, url)
    if not model and len(names) > 1:
        problem = f"{url} has several models, name one with --backend-model: {', '.join(names)}"
        raise InvalidConfiguration(flag, problem)
    if model and names and not {model, f"{model}{_LATEST}"} & {*names}:
        raise InvalidConfiguration(flag, f"{url} has no {model!r}; it has: {', '.join(names)}")
    return ModelTarget(url, model or next(iter(names), _UNNAMED))


async def _models_at(flag: str, url: str) -> list[str]:
    """List the models of a server; none if it does not tell."""
    try:
        async with httpx.AsyncClient(timeout=_SECONDS, trust_env=False) as client:
            answer = await client.get(f"{url}/v1/models")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = f"nothing answers at {url} ({str(error) or type(error).__name__}): does it run?"
        raise InvalidConfiguration(flag, problem) from error
    try:
        told = json.parse(answer.content)
    except ValueError:
        return []
    entries = told.get("data") if isinstance(told, dict) else None
    found = entries if isinstance(entries, list) else []
    return [str(one["id"]) for one in found if isinstance(one, dict) and "id" in one]
