"""`GET /props`: a model in llama-server's shape, for clients that read the window there."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query

from proxy.conversation.json import JsonObject
from proxy.serving.services import Services


def properties_router(services: Services) -> APIRouter:
    """Make the route that tells a model's properties; none can be changed."""
    router = APIRouter(tags=["models"])
    router.add_api_route("/props", _Properties(services).show, methods=["GET"])
    return router


@dataclass(frozen=True, slots=True)
class _Properties:
    """The endpoint; it never loads a model."""

    services: Services

    async def show(self, model: Annotated[str, Query()] = "") -> JsonObject:
        """Tell what is known of a model; where there is only one, it need not be named."""
        service, known = await self.services.identify(model)
        told: JsonObject = {
            "model_alias": service.name or known.model,
            "default_generation_settings": {} if known.window is None else {"n_ctx": known.window},
            "chat_template": known.evidence.template,
            "modalities": {sense: sense in known.senses for sense in ("vision", "audio")},
        }
        slots = service.parallel or known.slots
        return told if slots is None else {**told, "total_slots": slots}
