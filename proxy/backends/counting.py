"""Counts tokens with a llama-server, a vLLM, a LiteLLM proxy or Anthropic's API.

No function raises, and each takes at most a few seconds (`CountTimeouts`). If the result is None,
the count is unknown, and the caller estimates the count.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from proxy import bounds
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.lenient_json import as_integer, parse_object
from proxy.errors import BackendFailed, BackendTimedOut

COUNT = "/v1/chat/completions/input_tokens"
COUNT_MESSAGES = "/v1/messages/count_tokens"
TEMPLATE = "/apply-template"
TOKENIZE = "/tokenize"
# LiteLLM's proxy returns the count of the provider, or an estimate if the provider cannot count
GATEWAY_COUNT = "/utils/token_counter?call_endpoint=true"

# A prompt with such members is not counted by rendering it: the template renders a short mark in
# place of an image or sound, so the count would be too low.
_MEDIA = (b'"image_url"', b'"input_audio"')
_MISSING = frozenset({404, 405, 501})  # statuses of a server without the endpoint

# /tokenize takes an array of texts and numbers: it tokenizes the texts and keeps the numbers. So
# one call counts many texts, separated by a number that is not a token. Build 11669 needs 0.3 s for
# 400 kB.
_SEPARATOR = -1
_BATCH_BYTES = 128 * 1024
_MOST_AT_ONCE = 4  # concurrent requests of one count
_BYTES_PER_TOKEN = 8  # bytes for one token in the response, which is a JSON array of numbers
_GATEWAY_FIELDS = ("model", "messages", "tools")
_BARE: JsonObject = {"add_special_tokens": False}  # no BOS before each text (vLLM)


@dataclass(frozen=True, slots=True)
class CountTimeouts:
    """The timeout of one count, and the pauses after a failure, in seconds.

    A request waits for its count, so after a timeout no counts are requested for a while.
    """

    answer: float = 2.0
    missing: float = 600.0  # the pause for an endpoint that the server does not have
    silent: float = 30.0  # the pause after a timeout


class TokenCounter:
    """Counts tokens with one server."""

    def __init__(self, connection: BackendClient, timeouts: CountTimeouts | None = None) -> None:
        self._connection = connection
        self._timeouts = timeouts or CountTimeouts()
        self._missing_until: dict[str, float] = {}
        self._silent_until = 0.0
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)

    @property
    def can_count(self) -> bool:
        """True if the server may be able to count a prompt now."""
        renders = not (self._is_missing(TEMPLATE) or self._is_missing(TOKENIZE))
        return not self._is_silent and (renders or not self._is_missing(COUNT))

    async def count_prompt(self, body: bytes, headers: Mapping[str, str]) -> int | None:
        """Return the number of tokens in the prompt of a chat request's body."""
        if counted := await self._post(COUNT, body, headers):
            return as_integer(counted.get("input_tokens"))
        # older builds of llama-server have no COUNT
        if self._is_missing(COUNT) and not any(kind in body for kind in _MEDIA):
            return await self._count_rendered(body, headers)
        return None

    async def count_chat(self, body: bytes, headers: Mapping[str, str]) -> int | None:
        """Like `count_prompt`, for an engine whose `/tokenize` takes a chat, such as vLLM."""
        return as_integer((await self._post(TOKENIZE, body, headers)).get("count"))

    async def count_at_gateway(self, body: bytes, headers: Mapping[str, str]) -> int | None:
        """Like `count_prompt`, for a LiteLLM proxy; None if the proxy only estimates."""
        members = json.split_object(body)
        known = {name: members[name] for name in _GATEWAY_FIELDS if name in members}
        counted = await self._post(GATEWAY_COUNT, json.join_object(known), headers)
        # `count_source` is new in LiteLLM 1.108.7; older versions only send a tokenizer type, such
        # as "openai_api" for an exact count
        source = counted.get("count_source")
        is_exact = source == "provider" or str(counted.get("tokenizer_type")).endswith("_api")
        if not is_exact:
            self._missing_until[GATEWAY_COUNT] = _now() + self._timeouts.missing
        return as_integer(counted.get("total_tokens")) if is_exact else None

    async def count_messages(self, body: bytes, headers: Mapping[str, str]) -> int | None:
        """Like `count_prompt`, for a body of Anthropic's Messages API."""
        return as_integer((await self._post(COUNT_MESSAGES, body, headers)).get("input_tokens"))

    async def count_texts(
        self, texts: Iterable[str], headers: Mapping[str, str]
    ) -> tuple[int, ...] | None:
        """Return the number of tokens in each text, without a token for the beginning (BOS).

        The name of a special token in a text, such as `<|im_end|>`, counts as one token.
        """
        if self._is_missing(TOKENIZE):
            return None
        requests = [self._count_batch(batch, headers) for batch in _batches(texts)]
        counted = await asyncio.gather(*requests)
        known = [lengths for lengths in counted if lengths is not None]
        return tuple(chain.from_iterable(known)) if len(known) == len(counted) else None

    async def count_each(
        self, texts: Iterable[str], headers: Mapping[str, str]
    ) -> tuple[int, ...] | None:
        """Like `count_texts`, for an engine that tokenizes one prompt at a time, such as vLLM."""
        texts, counted = [*texts], list[int]()
        for start in range(0, len(texts), _MOST_AT_ONCE):
            requests = [
                self._post(TOKENIZE, json.dump({"prompt": text, **_BARE}), headers)
                for text in texts[start : start + _MOST_AT_ONCE]
            ]
            counts = [as_integer(answer.get("count")) for answer in await asyncio.gather(*requests)]
            if None in counts:  # counts of the remaining texts would fail as well
                return None
            counted += [count for count in counts if count is not None]
        return tuple(counted)

    async def tokenize_prompt(
        self, body: bytes, headers: Mapping[str, str]
    ) -> list[JsonValue] | None:
        """Return the token ids of a chat request's prompt, as a llama-server caches them."""
        prompt = (await self._post(TEMPLATE, body, headers)).get("prompt")
        if not isinstance(prompt, str):
            return None
        # the server tokenizes a prompt with these options before it generates
        options: JsonObject = {"content": prompt, "add_special": True, "parse_special": True}
        return await self._tokenize(options, headers)

    async def _count_rendered(self, body: bytes, headers: Mapping[str, str]) -> int | None:
        """Render the prompt and tokenize it, for llama-server builds without `COUNT`."""
        tokens = await self.tokenize_prompt(body, headers)
        return None if tokens is None else len(tokens)

    async def _count_batch(
        self, texts: Sequence[str], headers: Mapping[str, str]
    ) -> Iterator[int] | None:
        content: list[JsonValue] = []
        for text in texts:
            content += (text, _SEPARATOR)
        async with self._turns:
            tokens = await self._tokenize({"content": content}, headers)
        ends = [-1, *(i for i, token in enumerate(tokens or ()) if token == _SEPARATOR)]
        if tokens is None or len(ends) != len(texts) + 1:
            return None
        return (end - start - 1 for start, end in pairwise(ends))

    async def _tokenize(
        self, body: JsonObject, headers: Mapping[str, str]
    ) -> list[JsonValue] | None:
        tokens = (await self._post(TOKENIZE, json.dump(body), headers)).get("tokens")
        return tokens if isinstance(tokens, list) else None

    async def _post(self, path: str, body: bytes, headers: Mapping[str, str]) -> JsonObject:
        """Return the JSON object of the response; {} after a failure or during a pause."""
        if self._is_missing(path) or self._is_silent:
            return {}
        # the response lists the tokens as numbers, at most one token for each byte of the body
        limit = bounds.DOCUMENT_BYTES + _BYTES_PER_TOKEN * len(body)
        within = self._timeouts.answer
        try:
            answer = await self._connection.fetch(path, body, headers, within=within, limit=limit)
        except BackendTimedOut:
            self._silent_until = _now() + self._timeouts.silent
            return {}
        except BackendFailed:
            return {}
        if answer.status in _MISSING:
            self._missing_until[path] = _now() + self._timeouts.missing
        return (parse_object(answer.body) or {}) if 200 <= answer.status < 300 else {}

    @property
    def _is_silent(self) -> bool:
        return _now() < self._silent_until

    def _is_missing(self, path: str) -> bool:
        return _now() < self._missing_until.get(path, 0.0)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Divide texts into batches of up to `_BATCH_BYTES`; a longer text is a batch by itself."""
    batch: list[str] = []
    size = 0
    for text in texts:
        length = len(text.encode())
        if batch and size + length > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += length
    if batch:
        yield batch
