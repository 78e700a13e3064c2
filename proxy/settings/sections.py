"""The settings there are, section by section: names, bounds, defaults and what each is for."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from proxy.settings.values import (
    Arguments,
    CacheType,
    Collector,
    Count,
    Duration,
    File,
    Headers,
    Key,
    Layers,
    Name,
    OneUrl,
    Origin,
    Patience,
    Repository,
    Seconds,
    Share,
    Url,
    ValueCacheType,
)


class Section(BaseModel):
    """Some settings that belong together: known names only, and never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Server(Section):
    """Where Temper listens and how it treats its clients."""

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="address to listen on; beyond loopback an api_key is required",
    )
    port: Count = Field(
        default=8367, ge=0, le=65535, description="TCP port to listen on; 0 takes a free one"
    )
    api_key: Key = Field(default=None, description="key that clients must send as a bearer token")
    api_keys_file: File = Field(
        default=None,
        description="file with one 'name key' a line, for clients with keys of their own",
    )
    allowed_hosts: list[str] = Field(
        default=[], description="names by which clients may call the server, besides loopback's"
    )
    cors_origins: list[Origin] = Field(
        default=[], description="web pages that may use the server from a browser: their origins"
    )
    max_body_bytes: Count = Field(
        default=33_554_432, ge=1024, description="largest accepted request body, in bytes"
    )
    max_connections: Count = Field(
        default=2048, ge=1, description="connections that may be open at once; more get a 503"
    )
    header_seconds: Seconds = Field(
        default=10, description="how long the head of a request may take to come, in seconds"
    )
    body_seconds: Seconds = Field(
        default=30, description="how long the body of a request may take to come, in seconds"
    )
    stall_seconds: Seconds = Field(default=60, description="longest stall of a client, in seconds")
    workers: Count = Field(
        default=1, ge=1, le=64, description="processes that serve; one is enough for most machines"
    )
    max_waiting: Count = Field(
        default=256, ge=1, description="requests that may wait for a slot; more get a 429"
    )
    grace_seconds: Patience = Field(
        default=10,
        description="how long running requests may take to finish at shutdown, in seconds",
    )
    keep_alive_seconds: Seconds = Field(
        default=10,
        description="silence before a streaming client gets a keep-alive chunk, in seconds",
    )


class Address(Section):
    """A running server, and how Temper speaks to it."""

    url: Url = Field(
        default=None,
        description="address of an OpenAI-compatible server, e.g. http://127.0.0.1:8080",
    )
    urls: list[OneUrl] = Field(
        default=[], description="several servers of the same model, instead of one url"
    )
    kind: Literal["auto", "llama-server", "ollama", "openai", "anthropic"] = Field(
        default="auto",
        description="what it is: llama-server, ollama, anthropic for what speaks Anthropic's "
        "Messages API, openai for any other server, or auto",
    )
    api_key: Key = Field(default=None, description="key that Temper sends to the backend")
    headers: Headers = Field(
        default={}, description="further headers that Temper sends to the backend"
    )
    parallel_requests: Count = Field(
        default=0, ge=0, description="requests put to it at once; 0 means one for each of its slots"
    )

    @property
    def addresses(self) -> tuple[str, ...]:
        """All servers that are named; they serve the same model."""
        return tuple(dict.fromkeys(self.urls)) if self.url is None else (self.url,)


class Backend(Address):
    """The running server that Temper talks to, and how long it waits for it."""

    connect_seconds: Seconds = Field(
        default=5, description="limit for opening a connection, in seconds"
    )
    first_byte_seconds: Seconds = Field(
        default=600, description="limit for the first sign of a reply, in seconds"
    )
    idle_seconds: Seconds = Field(
        default=120, description="longest silence inside a reply, in seconds"
    )
    load_wait_seconds: Patience = Field(
        default=60,
        description="how long requests wait for a model that is being loaded, in seconds",
    )
    deadline_seconds: Seconds = Field(
        default=1800, description="limit for all attempts of one request together, in seconds"
    )
    replicas: Count = Field(
        default=1,
        ge=1,
        le=1024,
        description="Tempers that share these servers; each takes its part of the slots, or one",
    )


class Ollama(Section):
    """What is asked of an Ollama; without backend.url it is looked for where OLLAMA_HOST says."""

    model: Name = Field(
        default=None, description="model that answers whatever name clients ask for"
    )
    context_tokens: Count = Field(
        default=0, ge=0, description="window of every model, in tokens; 0 leaves it to Ollama"
    )
    keep_alive: Duration = Field(
        default="", description='how long a model stays loaded: "10m", seconds, or -1 for ever'
    )


class Model(Section):
    """The model that Temper starts a server for."""

    path: File = Field(default=None, description="GGUF file to start a llama-server with")
    context_tokens: Count = Field(
        default=8192, ge=256, description="context window of one slot, in tokens"
    )
    slots: Count = Field(
        default=2, ge=1, le=256, description="requests that the model works on at once"
    )
    load_seconds: Seconds = Field(
        default=600, description="limit for loading the model, in seconds"
    )
    alias: Name = Field(default=None, description="name under which clients see the model")
    hf_repo: Repository = Field(
        default=None,
        description="instead of path: repository of Hugging Face to download, owner/name:Q4_K_M",
    )
    gpu_layers: Layers = Field(
        default="auto", description="layers that are put on the GPU: auto, or a number"
    )
    flash_attention: Literal["auto", "on", "off"] = Field(
        default="auto", description="whether the server uses flash attention: auto, on or off"
    )
    cache_type_k: CacheType = Field(
        default="f16", description="how keys are kept in the cache: f16, q8_0, q4_0, ..."
    )
    cache_type_v: ValueCacheType = Field(
        default="f16", description="the same for values; what is quantised needs flash attention"
    )
    port: Count = Field(
        default=0, ge=0, le=65535, description="port of the model's server; 0 takes a free one"
    )
    server: File = Field(
        default=None,
        description="llama-server to use instead of the one on the PATH or the embedded one",
    )
    extra_arguments: Arguments = Field(
        default=[], description="further arguments for the server, put last"
    )

    @property
    def source(self) -> Path | str | None:
        return self.path or self.hf_repo


class Guardrails(Section):
    """How replies are judged, and what happens to those that fail."""

    mode: Literal["on", "observe", "off"] = Field(
        default="on", description="on, off, or observe: change nothing, report what would be done"
    )
    text_policy: Literal["auto", "respond", "accept", "require"] = Field(
        default="auto",
        description="what prose is worth while tools are offered: auto, accept, respond, require",
    )
    stream_calls: bool = Field(
        default=True, description="show calls while they are written, as far as they are valid"
    )
    strict: bool = Field(
        default=False, description="502 instead of the most faithful reply when no attempt was good"
    )
    max_attempts: Count = Field(
        default=3, ge=1, le=3, description="generations that one request may cost, 1 to 3"
    )
    max_repeats: Count = Field(
        default=3,
        ge=2,
        le=100,
        description="times a call may be repeated with the same result before it is withheld",
    )
    max_tool_rounds: Count = Field(
        default=50,
        ge=1,
        description="rounds of tool calls after which a model that finds nothing new has to answer",
    )
    max_failed_rounds: Count = Field(
        default=3,
        ge=1,
        description="rounds in a row of failing tool calls after which the model is told so",
    )
    without: list[
        Literal["rescue", "repair", "nudge", "constrained", "respond", "loops", "compaction"]
    ] = Field(
        default=[],
        description="parts to leave out, for measuring: rescue, repair, nudge, constrained, "
        "respond, loops, compaction",
    )


class Responses(Section):
    """Responses that are kept, so that clients may go on from one (`previous_response_id`)."""

    store: Literal["memory", "off"] = Field(
        default="memory",
        description="memory or off; without a path, several workers keep none",
    )
    path: File = Field(
        default=None, description="SQLite file to keep them in, over restarts and for all workers"
    )
    store_seconds: Seconds = Field(
        default=3600.0, description="how long one is kept after it was used last, in seconds"
    )
    store_bytes: Count = Field(
        default=64 * 2**20, ge=2**20, description="how much is kept, in bytes"
    )
    store_responses: Count = Field(default=1000, ge=1, description="how many are kept")


class Context(Section):
    """How a conversation that grows is kept inside the window of the model."""

    compaction: Literal["auto", "report", "off"] = Field(
        default="auto",
        description="auto, off, or report: count and warn, and send everything as it came",
    )
    strategy: Literal["tiered", "sliding", "none"] = Field(
        default="tiered",
        description="how: tiered (keeps the prompt cache), sliding (for comparison) or none",
    )
    budget: Literal["backend", "manual", "full", "fast"] = Field(
        default="backend",
        description="whose window: backend, manual (window_tokens), full (the largest that fits "
        "the hardware) or fast (half of that)",
    )
    window_tokens: Count = Field(
        default=0, ge=0, description="use no more of the window than this; 0 means all of it"
    )
    high: Share = Field(
        default=0.9, description="share of the room for the prompt at which it is shortened"
    )
    low: Share = Field(default=0.5, description="share of the room to which it is shortened")
    recent_groups: Count = Field(
        default=3, ge=1, description="latest calls with their results that are never touched"
    )
    never_clear: list[str] = Field(
        default=[], description="tools whose results are never shortened"
    )


class Profile(Section):
    """What is known about the model; `temper models` shows what was recognised, and why."""

    name: Name = Field(
        default=None, description="profile to use instead of the one that is recognised"
    )
    folder: File = Field(
        default=None, description="folder with profiles of your own (*.toml), used before ours"
    )
    tools_in_prompt: Literal[
        "auto", "never", "hermes", "mistral", "gemma", "llama3", "react", "json"
    ] = Field(
        default="auto",
        description="how tools are described where the chat template cannot: hermes, mistral, "
        "gemma, llama3, react or json; or never, or auto",
    )
    replay: Literal["auto", "none", "last", "full"] = Field(
        default="auto",
        description="which earlier thoughts the model sees again: none, last (since the user "
        "spoke), full, or auto",
    )
    thinking: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="whether the model thinks before it answers, where a request does not say: "
        "on, off, or auto for what it does by itself",
    )


class Logging(Section):
    """What is written to standard error, one line per request."""

    format: Literal["auto", "text", "json"] = Field(
        default="auto",
        description="form of a log line: text, json, or auto: short on a terminal, else json",
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="least severe line that is written: debug, info, warning or error",
    )


class Metrics(Section):
    """What `/metrics` shows, for Prometheus and inference gateways."""

    enabled: bool = Field(default=True, description="count requests and serve /metrics")
    open: bool = Field(default=False, description="serve /metrics without the api_key as well")


class Ui(Section):
    """The dashboard at `/ui`, for the operator."""

    enabled: bool = Field(default=True, description="serve the dashboard")
    owners: list[str] = Field(
        default=[], description="names in api_keys_file whose keys open it, besides api_key"
    )
    read_only: bool = Field(
        default=False, description="let nobody cancel a request or allow a call there"
    )


class Tracing(Section):
    """Where OpenTelemetry spans go; needs the extra `otel`."""

    url: Collector = Field(
        default=None, description="address of an OTLP collector, e.g. http://127.0.0.1:4318"
    )


class Recording(Section):
    """What is written down for `temper replay`: requests with all they say, and raw replies."""

    path: File = Field(
        default=None, description="file to record every chat request in, bodies included"
    )
    max_bytes: Count = Field(
        default=268_435_456, ge=1024, description="size at which the recording ends, in bytes"
    )
    keep_bytes: Count = Field(
        default=0,
        ge=0,
        description="the latest requests to keep for the dashboard, in bytes; 0 keeps none",
    )
