"""The settings there are, section by section: names, bounds, defaults and what each is for."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from proxy import bounds
from proxy.dialects.openai_chat.thinking import Effort
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
    Secrets,
    Share,
    StateUrl,
    Url,
    ValueCacheType,
    setting,
)


class Section(BaseModel):
    """Some settings that belong together: known names only, and never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Server(Section):
    """Where Temper listens and how it treats its clients."""

    host: str = setting(
        "127.0.0.1", "address to listen on; beyond loopback an api_key is required", min_length=1
    )
    port: Count = setting(8367, "TCP port to listen on; 0 takes a free one", ge=0, le=65535)
    ollama_port: Count = setting(
        0,
        "further port, for clients that look for an Ollama at its own, 11434; 0 for none",
        ge=0,
        le=65535,
    )
    api_key: Key = setting(None, "key that clients must send as a bearer token")
    api_keys_file: File = setting(
        None, "file with one 'name key' a line, for clients with keys of their own"
    )
    allowed_hosts: list[str] = setting(
        [], "names by which clients may call the server, besides loopback's"
    )
    cors_origins: list[Origin] = setting(
        [], "web pages that may use the server from a browser: their origins"
    )
    max_body_bytes: Count = setting(
        bounds.BODY_BYTES, "largest accepted request body, in bytes", ge=1024
    )
    max_connections: Count = setting(
        2048, "connections that may be open at once; more get a 503", ge=1
    )
    header_seconds: Seconds = setting(
        10, "how long the head of a request may take to come, in seconds"
    )
    body_seconds: Seconds = setting(
        30, "how long the body of a request may take to come, in seconds"
    )
    stall_seconds: Seconds = setting(60, "longest stall of a client, in seconds")
    workers: Count = setting(
        1, "processes that serve; one is enough for most machines", ge=1, le=64
    )
    max_waiting: Count = setting(256, "requests that may wait for a slot; more get a 429", ge=1)
    priorities: dict[str, Literal["high", "normal", "low"]] = setting(
        {}, "highest priority of requests by the name of their key; low ones wait behind others"
    )
    grace_seconds: Patience = setting(
        10, "how long running requests may take to finish at shutdown, in seconds"
    )
    keep_alive_seconds: Seconds = setting(
        10,
        "silence before a client gets a sign of life, in seconds; after twice that time a whole "
        "answer has the status 200, and an error can no longer change it",
    )


class Address(Section):
    """A running server, and how Temper speaks to it."""

    url: Url = setting(None, "address of an OpenAI-compatible server, e.g. http://127.0.0.1:8080")
    urls: list[OneUrl] = setting([], "several servers of the same model, instead of one url")
    kind: Literal["auto", "llama-server", "ollama", "openai", "anthropic"] = setting(
        "auto",
        "what it is: llama-server, ollama, anthropic for what speaks Anthropic's Messages API, "
        "openai for any other server, or auto",
    )
    api_key: Key = setting(None, "key that Temper sends to the backend")
    headers: Headers = setting({}, "further headers that Temper sends to the backend")
    parallel_requests: Count = setting(
        0, "requests put to it at once; 0 means one for each of its slots", ge=0
    )

    @property
    def addresses(self) -> tuple[str, ...]:
        """All servers that are named; they serve the same model."""
        return tuple(dict.fromkeys(self.urls)) if self.url is None else (self.url,)


class Backend(Address):
    """The running server that Temper talks to, and how long it waits for it."""

    connect_seconds: Seconds = setting(5, "limit for opening a connection, in seconds")
    first_byte_seconds: Seconds = setting(600, "limit for the first sign of a reply, in seconds")
    idle_seconds: Seconds = setting(120, "longest silence inside a reply, in seconds")
    lost_seconds: Seconds = setting(
        15, "how long its host may acknowledge nothing before it counts as gone, in seconds"
    )
    load_wait_seconds: Patience = setting(
        60, "how long requests wait for a model that is being loaded, in seconds"
    )
    deadline_seconds: Seconds = setting(
        1800, "limit for all attempts of one request together, in seconds"
    )
    replicas: Count = setting(
        1,
        "Tempers that share these servers; each takes its part of the slots, or one",
        ge=1,
        le=1024,
    )


class Ollama(Section):
    """What is asked of an Ollama; without backend.url it is looked for where OLLAMA_HOST says."""

    model: Name = setting(None, "model that answers whatever name clients ask for")
    context_tokens: Count = setting(
        0, "window of every model, in tokens; 0 leaves it to Ollama", ge=0
    )
    keep_alive: Duration = setting(
        "", 'how long a model stays loaded: "10m", seconds, or -1 for ever'
    )


class Model(Section):
    """The model that Temper starts a server for."""

    path: File = setting(None, "GGUF file to start a llama-server with")
    context_tokens: Count = setting(8192, "context window of one slot, in tokens", ge=256)
    slots: Count = setting(2, "requests that the model works on at once", ge=1, le=256)
    load_seconds: Seconds = setting(600, "limit for loading the model, in seconds")
    alias: Name = setting(None, "name under which clients see the model")
    hf_repo: Repository = setting(
        None, "instead of path: repository of Hugging Face to download, owner/name:Q4_K_M"
    )
    gpu_layers: Layers = setting("auto", "layers that are put on the GPU: auto, or a number")
    flash_attention: Literal["auto", "on", "off"] = setting(
        "auto", "whether the server uses flash attention: auto, on or off"
    )
    cache_type_k: CacheType = setting("f16", "how keys are kept in the cache: f16, q8_0, q4_0, ...")
    cache_type_v: ValueCacheType = setting(
        "f16", "the same for values; what is quantised needs flash attention"
    )
    port: Count = setting(0, "port of the model's server; 0 takes a free one", ge=0, le=65535)
    server: File = setting(
        None, "llama-server to use instead of the one on the PATH or the embedded one"
    )
    extra_arguments: Arguments = setting([], "further arguments for the server, put last")

    @property
    def source(self) -> Path | str | None:
        return self.path or self.hf_repo


class Guardrails(Section):
    """How replies are judged, and what happens to those that fail."""

    mode: Literal["on", "observe", "off"] = setting(
        "on", "on, off, or observe: change nothing, report what would be done"
    )
    text_policy: Literal["auto", "respond", "accept", "require"] = setting(
        "auto", "what prose is worth while tools are offered: auto, accept, respond, require"
    )
    stream_calls: bool = setting(
        True, "show calls while they are written, as far as they are valid"
    )
    exhausted: Literal["explain", "error", "empty"] = setting(
        "explain",
        "what stands in place of an answer when no attempt was good: explain (one sentence), error "
        "(502), empty",
    )
    strict: bool = setting(False, 'the same as exhausted = "error"')
    max_attempts: Count = setting(3, "generations that one request may cost, 1 to 3", ge=1, le=3)
    max_repeats: Count = setting(
        3, "times a call may be repeated with the same result before it is withheld", ge=2, le=100
    )
    max_tool_rounds: Count = setting(
        50, "rounds of tool calls after which a model that finds nothing new has to answer", ge=1
    )
    max_failed_rounds: Count = setting(
        3, "rounds in a row of failing tool calls after which the model is told so", ge=1
    )
    close_out: Literal["off", "structural", "always"] = setting(
        "off",
        "ask once more whether something is left to do, where a turn ends in text: off, structural "
        "(after a result that says that its call failed) or always (after every use of tools)",
    )
    close_out_tries: Count = setting(
        1, "times that is asked at one end; the second only where it is always", ge=1, le=2
    )
    without: list[
        Literal["rescue", "repair", "nudge", "constrained", "respond", "loops", "compaction"]
    ] = setting(
        [],
        "parts to leave out, for measuring: rescue, repair, nudge, constrained, respond, loops, "
        "compaction",
    )


class Responses(Section):
    """Responses that are kept, so that clients may go on from one (`previous_response_id`)."""

    store: Literal["memory", "off"] = setting(
        "memory", "memory or off; without a path, several workers keep none"
    )
    path: File = setting(None, "SQLite file to keep them in, over restarts and for all workers")
    store_seconds: Seconds = setting(
        3600.0, "how long one is kept after it was used last, in seconds"
    )
    store_bytes: Count = setting(64 * 2**20, "how much is kept, in bytes", ge=2**20)
    store_responses: Count = setting(1000, "how many are kept", ge=1)


class State(Section):
    """What replicas share in a Valkey or Redis (extra `state`): idempotency keys and responses."""

    url: StateUrl = setting(
        None,
        "address of the store: valkey://, valkeys:// (TLS), redis://, rediss:// or unix://; "
        "?namespace=NAME is the first part of every name there, else temper",
    )
    secret: Secrets = setting(
        None,
        "seals what is kept there, alike for all replicas; required beyond loopback and sockets. A "
        "second one, after a space, is the previous one: it only opens",
    )
    timeout_ms: Count = setting(
        200, "longest wait for the store, in milliseconds", ge=10, le=10_000
    )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets, first the one that seals; an empty one where none is needed."""
        return ("",) if self.secret is None else (*self.secret.get_secret_value().split(),)


class Context(Section):
    """How a conversation that grows is kept inside the window of the model."""

    compaction: Literal["auto", "report", "off"] = setting(
        "auto", "auto, off, or report: count and warn, and send everything as it came"
    )
    strategy: Literal["tiered", "sliding", "none"] = setting(
        "tiered", "how: tiered (keeps the prompt cache), sliding (for comparison) or none"
    )
    budget: Literal["backend", "manual", "full", "fast"] = setting(
        "backend",
        "whose window: backend, manual (window_tokens), full (the largest that fits the hardware) "
        "or fast (half of that)",
    )
    window_tokens: Count = setting(
        0, "use no more of the window than this; 0 means all of it", ge=0
    )
    high: Share = setting(
        0.9,
        "share of the room at which a prompt is shortened; unset, all of it if the engine counts",
    )
    low: Share = setting(0.5, "share of the room to which it is shortened")
    recent_groups: Count = setting(
        3, "latest calls with their results that are never touched", ge=1
    )
    never_clear: list[str] = setting([], "tools whose results are never shortened")


class Profile(Section):
    """What is known about the model; `temper models` shows what was recognised, and why."""

    name: Name = setting(None, "profile to use instead of the one that is recognised")
    folder: File = setting(None, "folder with profiles of your own (*.toml), used before ours")
    tools_in_prompt: Literal[
        "auto", "never", "hermes", "mistral", "gemma", "llama3", "react", "json"
    ] = setting(
        "auto",
        "how tools are described where the chat template cannot: hermes, mistral, gemma, llama3, "
        "react or json; or never, or auto",
    )
    replay: Literal["auto", "none", "last", "full"] = setting(
        "auto",
        "which earlier thoughts the model sees again: none, last (since the user spoke), full, or "
        "auto",
    )
    thinking: Literal["auto", "on", "off"] = setting(
        "auto",
        "whether the model thinks before it answers, where a request does not say: on, off, or "
        "auto for what it does by itself",
    )
    effort: Literal["auto", Effort] = setting(
        "auto",
        "how much it thinks, where a request does not say: minimal, low, medium, high, xhigh, max, "
        "the none or no_think of some models, or auto for what it does by itself",
    )


class Logging(Section):
    """What is written to standard error, one line per request."""

    format: Literal["auto", "text", "json"] = setting(
        "auto", "form of a log line: text, json, or auto: short on a terminal, else json"
    )
    level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "least severe line that is written: debug, info, warning or error"
    )


class Metrics(Section):
    """What `/metrics` shows, for Prometheus and inference gateways."""

    enabled: bool = setting(True, "count requests and serve /metrics")
    open: bool = setting(False, "serve /metrics without the api_key as well")


class Ui(Section):
    """The dashboard at `/ui`, for the operator."""

    enabled: bool = setting(True, "serve the dashboard")
    owners: list[str] = setting([], "names in api_keys_file whose keys open it, besides api_key")
    read_only: bool = setting(False, "let nobody cancel a request or allow a call there")


class Tracing(Section):
    """Where OpenTelemetry spans go; needs the extra `otel`."""

    url: Collector = setting(None, "address of an OTLP collector, e.g. http://127.0.0.1:4318")


class Recording(Section):
    """What is written down for `temper replay`: requests with all they say, and raw replies."""

    path: File = setting(None, "file to record every chat request in, bodies included")
    max_bytes: Count = setting(268_435_456, "size at which the recording ends, in bytes", ge=1024)
    keep_bytes: Count = setting(
        0, "the latest requests to keep for the dashboard, in bytes; 0 keeps none", ge=0
    )
