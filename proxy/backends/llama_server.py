"""Adapter for llama.cpp's server, whose parser, grammar and endpoints are its own.

    {"return_progress": true, "tool_choice": "none",
     "response_format": {"type": "json_schema", "json_schema": {...}}}

These are the fields of a constrained attempt. The behavior described here was measured with build
11669; the server in xllamacpp behaves in the same way.
"""

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import replace

from msgspec import structs

from proxy import errors
from proxy.backends import client
from proxy.backends.capabilities import (
    Capability,
    Lacks,
    response_format_of,
    without_missing_features,
)
from proxy.backends.counting import TokenCounter
from proxy.backends.http_backend import OutgoingRequest
from proxy.backends.openai_compatible import CHAT, OpenAICompatible
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject
from proxy.conversation.requests import Parsing, UpstreamRequest
from proxy.conversation.tools import ToolUse
from proxy.dialects.lenient_json import as_object, as_positive, as_text
from proxy.dialects.openai_chat.thinking import thinking_fields
from proxy.guardrails.schemas.rewriting import simplify

PROPERTIES = "/props"
HEALTH = "/health"

# the wording of a refusal with status 500 -> the field of the request that causes it
_CLIENTS_FAULTS = {
    "Failed to parse messages": "messages",
    "Failed to parse tool call arguments": "messages",
    "Failed to parse tools": "tools",
    "input is not supported": "messages",
}

# The template variable that switches reasoning. The server translates it for the templates of
# DeepSeek and Granite.
_SWITCH = ("enable_thinking",)

# in the refusal of an embedding input that is longer than a batch; the refusal has no error code
# (build 11669)
_TOO_LARGE = "is too large to process"


def directives(upstream_request: UpstreamRequest) -> JsonObject:
    """Return the fields that make a llama-server follow the constraints of a request.

    With `tools` and `tool_choice: "none"` the rendered prompt, and so the prompt cache, stays the
    same, and the server returns the raw text. Temper enforces `required` and a named tool itself,
    and never sends them: `required` bans the end of text, so prose continues until max_tokens, and
    the server silently treats a named tool as `auto`. Progress events show that the server is still
    reading a long prompt, and let it notice a canceled request quickly.
    """
    fields: JsonObject = {"return_progress": True}
    if upstream_request.tools:
        is_raw = upstream_request.parsing is Parsing.OURS or upstream_request.schema is not None
        is_none = is_raw or upstream_request.tool_choice is ToolUse.NONE
        fields["tool_choice"] = "none" if is_none else "auto"
    if upstream_request.resets_cache:
        fields["cache_prompt"] = False
    if upstream_request.request.wants_stop:  # only verbose replies name the stop string
        fields["verbose"] = True
    thinking = thinking_fields(upstream_request.request, _SWITCH, takes_budget=True)
    return fields | thinking | response_format_of(upstream_request)


class LlamaServer(OpenAICompatible):
    """A llama-server, managed by Temper or by the operator.

    While the server loads its model, requests wait for up to `load_wait` seconds. A llama-server
    never reports the `architecture` of its model, so the caller reads it from the model file.

    With --sleep-idle-seconds, the server unloads an idle model. Chats, counts and /slots load the
    model again; /health, /props and /v1/models do not. While the model loads again, every endpoint
    except /health waits. During this time, chats send progress events, and the last description
    stays valid.
    """

    # REPLY_PARSER is dropped first, because this does not change the prompt, and so keeps its cache
    parsers = (Capability.REPLY_PARSER, Capability.TOOLS)

    def __init__(
        self,
        connection: BackendClient,
        *,
        load_wait: float = 0.0,
        poll_seconds: float = 0.5,
        architecture: str = "",
    ) -> None:
        super().__init__(connection)
        self._counter = TokenCounter(connection)
        self._architecture = architecture
        self._load_wait = load_wait
        self._poll_seconds = poll_seconds
        self._served: tuple[client.BackendModel, ...] = ()

    def directives(self, upstream_request: UpstreamRequest, lacks: Lacks) -> JsonObject:
        return directives(upstream_request)

    async def prepare(self, upstream_request: UpstreamRequest, lacks: Lacks) -> OutgoingRequest:
        now = asyncio.get_running_loop().time() if self._load_wait else 0.0
        body = self.body_of(simplify_tools(upstream_request), lacks)
        return OutgoingRequest(CHAT, body, upstream_request, began_at=now)

    async def recover(
        self, attempt: OutgoingRequest, error: errors.BackendFailed
    ) -> OutgoingRequest:
        if isinstance(error, errors.BackendRefused):
            raise _meaning(error) from error
        if await self._has_loaded(error, attempt.began_at + self._load_wait):
            return attempt
        raise error

    async def _has_loaded(self, error: errors.BackendFailed, deadline: float) -> bool:
        """Wait while the model is being loaded; return whether to send the request again."""
        if not isinstance(error, errors.BackendUnavailable) or not error.loading:
            return False
        while asyncio.get_running_loop().time() < deadline:
            if await self.health() is not client.Health.LOADING:
                return True
            await asyncio.sleep(self._poll_seconds)
        return False

    async def relay(
        self, request: client.PassthroughRequest, headers: client.Headers
    ) -> client.Pieces:
        deadline = asyncio.get_running_loop().time() + self._load_wait
        while True:
            try:
                async with aclosing(super().relay(request, headers)) as pieces:
                    async for piece in pieces:
                        yield piece
            except errors.BackendRefused as refusal:
                if refusal.status == 500 and _TOO_LARGE in refusal.message:
                    raise errors.InvalidRequest(refusal.message, request.text_field) from refusal
                raise
            except errors.BackendUnavailable as error:
                if not await self._has_loaded(error, deadline):
                    raise
            else:
                return

    async def count(self, upstream_request: UpstreamRequest, headers: client.Headers) -> int | None:
        if not self._counter.can_count:  # saves writing the body
            return None
        return await self._counter.count_prompt(self._body(upstream_request, headers), headers)

    async def prompt_tokens(
        self, upstream_request: UpstreamRequest, headers: client.Headers
    ) -> client.PromptTokens:
        body = self._body(upstream_request, headers)
        return await self._counter.tokenize_prompt(body, headers)

    def _body(self, upstream_request: UpstreamRequest, headers: client.Headers) -> bytes:
        lacks = self.lacks_of(upstream_request, headers)
        return self.body_of(
            simplify_tools(without_missing_features(upstream_request, lacks)), lacks
        )

    async def count_texts(
        self, texts: Iterable[str], headers: client.Headers
    ) -> tuple[int, ...] | None:
        return await self._counter.count_texts(texts, headers)

    async def models(self) -> tuple[client.BackendModel, ...]:
        """List the models, even while they load.

        If the server does not answer because it is loading an idle model again, returns the
        previous list.
        """
        try:
            self._served = await super().models()
        except errors.BackendTimedOut:
            if not self._served:
                raise
        return self._served

    async def health(self) -> client.Health:
        match await self.probe(HEALTH):
            case 200:
                return client.Health.READY
            case 503:
                return client.Health.LOADING
            case _:
                return client.Health.UNREACHABLE

    async def describe(self, model: str) -> client.Description:
        try:
            properties = await self.fetch(PROPERTIES)
        except errors.BackendRefused:
            return await super().describe(model)
        except errors.BackendFailed as error:
            known = client.Description((model,))
            if isinstance(error, errors.BackendUnavailable) and error.loading:
                known = await super().describe(model)  # the list is served while the model loads
            return replace(known, is_provisional=True)
        names = [properties.get("model_alias"), properties.get("model_path")]
        self.learned.note_build(f"{properties.get('build_info')} {properties.get('model_path')}")
        senses = as_object(properties.get("modalities"))
        slot_settings = as_object(properties.get("default_generation_settings"))
        return client.Description(
            tuple(name for name in names if isinstance(name, str) and name) or (model,),
            self._architecture,
            as_text(properties.get("chat_template")),
            slots=as_positive(properties.get("total_slots")),
            window=as_positive(slot_settings.get("n_ctx")),  # router mode reports 0: unknown
            senses=tuple(sense for sense, has in senses.items() if has is True),
            rejects_images=senses.get("vision") is False,
            engine="llama.cpp",
            lacks=self.name_lacks(model, is_only=True),
            build=as_text(properties.get("build_info")),
        )


def simplify_tools(upstream_request: UpstreamRequest) -> UpstreamRequest:
    """Simplify the schemas that the server refuses."""
    tools = tuple(map(simplify, upstream_request.tools))
    return (
        upstream_request
        if tools == upstream_request.tools
        else structs.replace(upstream_request, tools=tools)
    )


def _meaning(refusal: errors.BackendRefused) -> errors.BackendRefused | errors.InvalidRequest:
    """Return `InvalidRequest` if a field of the request caused a refusal, otherwise the refusal.

    The server sends the status 500 for such a field. Examples from build 11669:

        {"error": {"code": 500, "message": "Failed to parse tools: ...", "type": "server_error"}}
        {"error": {"message": "image input is not supported - hint: ..."}}   (to a text model)
    """
    for wording, param in _CLIENTS_FAULTS.items():
        if refusal.status == 500 and wording in refusal.message:
            return errors.InvalidRequest(refusal.message, param)
    return refusal
