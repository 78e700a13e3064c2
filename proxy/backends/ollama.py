"""Ollama's native API, `/api/chat`, written from its source (v0.30 to v0.34) without a test run.

The API has no `tool_choice`. It never returns the raw text of a reply to a request with tools,
because Ollama's parsers remove the calls from the text. If Temper needs that text, it describes the
tools in the prompt instead.
"""

import logging
import re
from dataclasses import dataclass

from msgspec.structs import replace

from proxy import errors
from proxy.backends.capabilities import Lacks, describe_tools
from proxy.backends.client import BackendModel, Description, Health, PassthroughRequest
from proxy.backends.http_backend import HttpBackend, OutgoingRequest, PieceDecoder, ReplyDecoder
from proxy.backends.ollama_models import USUAL, Fitting, ModelDetails, OllamaModels, complete_name
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.requests import Parsing, UpstreamRequest
from proxy.dialects.lenient_json import as_positive
from proxy.dialects.lines import LineDecoder
from proxy.dialects.ollama_chat.decode import LineReader, decode_error
from proxy.dialects.ollama_chat.encode import encode_request
from proxy.dialects.ollama_chat.fields import ModelSettings
from proxy.guardrails.history_repair.refused_forms import find_new_picture, hide_pictures

logger = logging.getLogger(__name__)

CHAT = "/api/chat"
VERSION = "/api/version"

# in the refusal of a reasoning setting: the model has no reasoning, or not the requested effort
_LACKS_THINKING = re.compile(r"does not support thinking|think value")
# The error of Ollama's runner if no user message is left in the prompt that it has truncated.
_CUT_PROMPT = "no user query found"
_BYTES_PER_TOKEN = 3  # the fewest bytes of the body for one token of the prompt
_SMALL = 8192  # tokens; the first request of most agents is longer
_SMALL_WINDOW = (
    "Ollama model %s: the window of %d tokens is too small for most agents; "
    "set ollama.context_tokens"
)
# the request fields with a reasoning setting; an error about reasoning names the field
_THINKING = ("reasoning_effort", "think", "chat_template_kwargs")


@dataclass(frozen=True, slots=True)
class OllamaOverrides:
    """The operator's settings.

    `model` serves all requests; if it is None, the model that a request names serves it. `num_ctx`
    is the window in tokens; if it is None, `fitting` or Ollama decides. `keep_alive` is the time
    until an idle model is unloaded.
    """

    model: str | None = None
    num_ctx: int | None = None
    keep_alive: str | float | None = None
    fitting: Fitting | None = None


class Ollama(HttpBackend):
    """A running Ollama. It counts no tokens."""

    def __init__(self, connection: BackendClient, overrides: OllamaOverrides | None = None) -> None:
        super().__init__(connection)
        self._overrides = overrides or OllamaOverrides()
        self._models = OllamaModels(self, self._overrides.num_ctx, self._overrides.fitting)
        self._warned: set[str] = set()

    async def unload(self) -> None:
        """Unload the models that Ollama loaded for Temper; never raises."""
        await self._models.unload()

    async def prepare(self, upstream_request: UpstreamRequest, lacks: Lacks) -> OutgoingRequest:
        name = self._resolve_model(upstream_request.request.model)
        details = await self._models.show(name)
        upstream_request = _without_pictures(upstream_request, name, details)
        settings = ModelSettings(
            name,
            await self._models.choose_window(
                name, as_positive(upstream_request.request.load.options.get("num_ctx"))
            ),
            self._overrides.keep_alive,
            thinks=details is None or details.has_capability("thinking") is not False,
            # only these models have levels of thinking; Ollama rejects a level for any other model
            has_efforts=details is not None and details.architecture in {"gptoss", "gpt-oss"},
        )
        sent_request = (
            describe_tools(upstream_request, lacks)
            if _needs_described_tools(upstream_request, details)
            else upstream_request
        )
        # Ollama sends a call only once it is complete, and nothing while the model writes it
        return OutgoingRequest(
            CHAT, encode_request(sent_request, settings), upstream_request, may_pause=True
        )

    def new_decoder(self) -> ReplyDecoder:
        return PieceDecoder(LineDecoder(), LineReader())

    def error_in(self, body: bytes) -> JsonObject:
        return decode_error(body)

    async def recover(
        self, attempt: OutgoingRequest, error: errors.BackendFailed
    ) -> OutgoingRequest:
        if not isinstance(error, errors.BackendRefused):
            raise error
        name = self._resolve_model(attempt.upstream_request.request.model)
        is_cut = _CUT_PROMPT in error.message
        if is_cut and await self._models.enlarge_window(
            name, len(attempt.body) // _BYTES_PER_TOKEN
        ):
            retry = await self.prepare(attempt.upstream_request, attempt.lacks)
            retry.lacks = attempt.lacks
            return retry
        raise await self._explain(error, attempt.upstream_request, name) from error

    def readdress(self, request: PassthroughRequest) -> PassthroughRequest:
        if not request.text_field:
            return request
        # Ollama's OpenAI-compatible endpoints serve embeddings and completions
        model = json.dump(self._resolve_model(request.model))
        return replace(request, fields={**request.fields, "model": model})

    async def models(self) -> tuple[BackendModel, ...]:
        """List the pulled models, or only the configured model if it serves all requests."""
        models = await self._models.list_models()
        chosen = self._overrides.model
        if chosen is None:
            return models
        return tuple(model for model in models if model.id == chosen) or (BackendModel(chosen, {}),)

    async def describe(self, model: str) -> Description:
        """Describe a model without loading it; never raises.

        The description has no template, because Ollama's is a Go template; the capabilities report
        whether the model accepts tools. The window may be unknown until the model is loaded.
        """
        name = self._name(model)
        details = await self._models.show(name, refresh=True)
        window = await self._models.window(name)
        if details is None:
            identity = complete_name(name)
            return Description(
                (name,), window=window, is_provisional=True, identity=identity, engine="Ollama"
            )
        self._warn_of_small_window(name, window)
        self.learned.note_build(await self.read_text(VERSION, "version"))
        other_names = [
            other for other in self.learned.models() if complete_name(other) == complete_name(name)
        ]
        return Description(
            details.names,
            details.architecture,
            window=window,
            is_provisional=window is None,
            takes_tools=details.has_capability("tools"),
            identity=complete_name(name),
            engine="Ollama",
            lacks=self.name_lacks(model, *other_names, is_only=self._overrides.model is not None),
            build=self.learned.build,
        )

    async def health(self) -> Health:
        # never LOADING: Ollama loads the model of a request itself, and lets the request wait
        return Health.READY if await self.probe(VERSION) == 200 else Health.UNREACHABLE

    def _name(self, model: str) -> str:
        return model if self._overrides.model is None else self._overrides.model

    def _resolve_model(self, model: str) -> str:
        if not (name := self._name(model)):
            raise errors.InvalidRequest(
                "A model name is required. 'ollama list' shows the available models.", "model"
            )
        return name

    async def _explain(
        self, refusal: errors.BackendRefused, upstream_request: UpstreamRequest, name: str
    ) -> Exception:
        if refusal.status == 400 and _LACKS_THINKING.search(refusal.message):
            param = next(
                (field for field in _THINKING if field in upstream_request.request.fields), None
            )
            return errors.InvalidRequest(
                f"{refusal.message}. Remove the field, or use another model.", param
            )
        if _CUT_PROMPT in refusal.message:
            return errors.ContextOverflow(
                refusal.message, None, await self._models.window(name) or USUAL
            )
        if refusal.status != 404:
            return refusal
        try:
            known = tuple(field.id for field in await self._models.list_models())
        except errors.BackendFailed:
            return refusal
        return errors.UnknownModel(name, known, f"Pull it first: ollama pull {name}")

    def _warn_of_small_window(self, name: str, window: int | None) -> None:
        """Warn once that a window is too small for most agents."""
        if window is not None and window < _SMALL and name not in self._warned:
            self._warned.add(name)
            logger.warning(_SMALL_WINDOW, name, window)


def _needs_described_tools(upstream_request: UpstreamRequest, details: ModelDetails | None) -> bool:
    if details is not None and details.has_capability("tools") is False:
        return True
    # if a schema constrains the whole reply, there is no call in it that Ollama could remove
    sent = upstream_request.request.fields.keys() - upstream_request.omits
    has_form = upstream_request.schema is not None or "response_format" in sent
    return upstream_request.parsing is Parsing.OURS and not has_form


def _without_pictures(
    upstream_request: UpstreamRequest, name: str, details: ModelDetails | None
) -> UpstreamRequest:
    """Replace images by a note if the model has no vision; Ollama would silently drop them.

    Raises `InvalidRequest` for a new image.
    """
    if details is None or details.has_capability("vision") is not False:
        return upstream_request
    if (param := find_new_picture(upstream_request.messages)) is not None:
        problem = f"The model {name!r} does not accept images. Choose one that does."
        raise errors.InvalidRequest(problem, param)
    return replace(upstream_request, messages=hide_pictures(upstream_request.messages))
