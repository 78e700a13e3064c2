"""The sections of settings: names, bounds, defaults and descriptions.

The settings reference, config/temper.toml and the schema of the Helm chart are generated from
these sections.
"""

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
    NonNegative,
    Origin,
    Repository,
    RequiredUrl,
    Seconds,
    Secrets,
    Share,
    StateUrl,
    Url,
    ValueCacheType,
    setting,
)


class Section(BaseModel):
    """A section of settings; immutable, unknown names are rejected."""

    # pydantic quotes the invalid value in its errors, and that may be a key (F40)
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Server(Section):
    """Listening address, client keys and limits of the HTTP server."""

    host: str = setting(
        "127.0.0.1",
        "address to listen on; an address other than loopback requires an api_key",
        min_length=1,
    )
    port: Count = setting(8367, "TCP port to listen on; 0 picks a free port", ge=0, le=65535)
    # Home Assistant, VS Code and others speak only Ollama's API (decision 0028)
    ollama_port: Count = setting(
        0,
        "additional port for clients that expect Ollama, usually 11434; 0 disables it",
        ge=0,
        le=65535,
    )
    api_key: Key = setting(None, "API key that clients must send as a bearer token")
    api_keys_file: File = setting(
        None, "file with one 'name key' pair per line, to give each client a separate key"
    )
    allowed_hosts: list[str] = setting(
        [], "host names that clients may use to reach the server, in addition to loopback names"
    )
    cors_origins: list[Origin] = setting(
        [], "origins of web pages that may call the server from a browser (CORS)"
    )
    max_body_bytes: Count = setting(
        bounds.BODY_BYTES, "maximum size of a request body, in bytes", ge=1024
    )
    max_connections: Count = setting(
        2048, "maximum number of open connections; further connections receive 503", ge=1
    )
    header_seconds: Seconds = setting(10, "time limit for receiving the request head, in seconds")
    body_seconds: Seconds = setting(30, "time limit for receiving the request body, in seconds")
    stall_seconds: Seconds = setting(
        60, "maximum time that a client may stop reading the response, in seconds"
    )
    # one process forwards more tokens per second than most engines generate (decision 0024)
    workers: Count = setting(
        1, "number of worker processes; 1 is enough for most machines", ge=1, le=64
    )
    max_waiting: Count = setting(
        256, "maximum number of requests waiting for a slot; further requests receive 429", ge=1
    )
    priorities: dict[str, Literal["high", "normal", "low"]] = setting(
        {}, "highest priority that each key may use, by key name: high, normal or low"
    )
    grace_seconds: NonNegative = setting(
        10, "time limit for running requests at shutdown, in seconds"
    )
    keep_alive_seconds: Seconds = setting(
        10,
        "interval of keep-alive output while a client waits, in seconds; a response that is "
        "not streamed sends its status line (200) after twice this time, and a later error "
        "cannot change it",
    )


class Address(Section):
    """Address and type of a running server."""

    url: Url = setting(None, "address of an OpenAI-compatible server, e.g. http://127.0.0.1:8080")
    urls: list[RequiredUrl] = setting(
        [], "addresses of several servers with the same model, instead of url"
    )
    kind: Literal["auto", "llama-server", "ollama", "openai", "anthropic"] = setting(
        "auto",
        "server type: auto, llama-server, ollama, anthropic (Anthropic's Messages API) or "
        "openai (any other server)",
    )
    api_key: Key = setting(None, "API key that Temper sends to the backend")
    headers: Headers = setting({}, "additional headers that Temper sends to the backend")
    parallel_requests: Count = setting(
        0, "maximum number of concurrent requests to this server; 0 means its number of slots", ge=0
    )

    @property
    def addresses(self) -> tuple[str, ...]:
        """The configured servers, which serve the same model."""
        return tuple(dict.fromkeys(self.urls)) if self.url is None else (self.url,)


class Backend(Address):
    """The running server that Temper sends requests to, and its timeouts."""

    connect_seconds: Seconds = setting(5, "time limit for opening a connection, in seconds")
    first_byte_seconds: Seconds = setting(
        600, "time limit for the first byte of a response, in seconds"
    )
    idle_seconds: Seconds = setting(120, "maximum pause within a response, in seconds")
    # much shorter than `first_byte_seconds`: a host that reads a long prompt still acknowledges
    # packets, an unreachable host does not (F89 to F91)
    lost_seconds: Seconds = setting(
        15,
        "time without TCP acknowledgments after which the host counts as unreachable, in seconds",
    )
    load_wait_seconds: NonNegative = setting(
        60, "time that requests wait while a model is loading, in seconds"
    )
    deadline_seconds: Seconds = setting(
        1800, "time limit for all attempts of a request together, in seconds"
    )
    replicas: Count = setting(
        1,
        "number of Temper replicas that share these servers; each uses its share of the "
        "slots, at least 1",
        ge=1,
        le=1024,
    )


class Ollama(Section):
    """Options for Ollama; without backend.url, the address is taken from OLLAMA_HOST."""

    model: Name = setting(
        None, "model to use for every request, whatever model name the client sends"
    )
    context_tokens: Count = setting(
        0, "context window of every model, in tokens; 0 keeps Ollama's setting", ge=0
    )
    keep_alive: Duration = setting(
        "", 'time that a model stays loaded: "10m", a number of seconds, or -1 for no limit'
    )


class Model(Section):
    """The model for which Temper starts a llama-server."""

    path: File = setting(None, "GGUF file to start llama-server with")
    context_tokens: Count = setting(8192, "context window per slot, in tokens", ge=256)
    slots: Count = setting(
        2, "number of slots: requests that the model processes concurrently", ge=1, le=256
    )
    load_seconds: Seconds = setting(600, "time limit for loading the model, in seconds")
    alias: Name = setting(None, "model name that clients see")
    hf_repo: Repository = setting(
        None, "Hugging Face repository to download instead of path, e.g. owner/name:Q4_K_M"
    )
    gpu_layers: Layers = setting("auto", "number of layers to offload to the GPU, or auto")
    flash_attention: Literal["auto", "on", "off"] = setting(
        "auto", "flash attention: auto, on or off"
    )
    cache_type_k: CacheType = setting(
        "f16", "data type of the KV cache for keys: f16, q8_0, q4_0, ..."
    )
    cache_type_v: ValueCacheType = setting(
        "f16", "data type of the KV cache for values; quantized types require flash attention"
    )
    port: Count = setting(
        0, "port of the managed llama-server; 0 picks a free port", ge=0, le=65535
    )
    server: File = setting(
        None, "path of the llama-server program; by default the one on PATH, else the embedded one"
    )
    extra_arguments: Arguments = setting([], "additional command-line arguments for llama-server")

    @property
    def source(self) -> Path | str | None:
        return self.path or self.hf_repo


class PromptCache(Section):
    """Saves the prompt caches of managed servers on disk, so that they survive a restart."""

    folder: File = setting(
        None,
        "folder in which the prompt caches of managed servers are saved before they stop; without "
        "it, the caches are lost. The files contain prompts",
    )
    max_mb: Count = setting(8192, "maximum size of all files in folder, in MB", ge=1)
    # container runtimes kill a process ten seconds after SIGTERM; in that time, running requests
    # and the server must also end
    max_seconds: Seconds = setting(
        5, "time limit for saving the caches of a server, and for restoring them, in seconds"
    )


class Guardrails(Section):
    """How replies are validated, repaired and retried."""

    mode: Literal["on", "observe", "off"] = setting(
        "on", "on, off, or observe (report interventions without making them)"
    )
    # not `respond`: with that policy, only 8 of 34 clients finished their tool loop (decision 0003)
    text_policy: Literal["auto", "respond", "accept", "require"] = setting(
        "auto",
        "handling of replies without a tool call when the request has tools: auto, accept, "
        "respond or require",
    )
    # without streaming, a call of 3,000 tokens is a minute without output (decision 0018)
    stream_calls: bool = setting(
        True, "stream the arguments of a call as soon as they are known to be valid"
    )
    exhausted: Literal["explain", "error", "empty"] = setting(
        "explain",
        "response when no attempt was usable: explain (one sentence as content), error (502) "
        "or empty",
    )
    strict: bool = setting(False, 'same as exhausted = "error"')
    # The three attempts differ: plain, with a nudge, with a grammar (docs/turn.md). A fourth
    # attempt would repeat one of these.
    max_attempts: Count = setting(3, "maximum number of attempts per request, 1 to 3", ge=1, le=3)
    max_repeats: Count = setting(
        3,
        "number of times a call may repeat with the same result before Temper rejects it",
        ge=2,
        le=100,
    )
    max_tool_rounds: Count = setting(
        50,
        "number of tool rounds after which a model that makes no progress must answer in text",
        ge=1,
    )
    max_failed_rounds: Count = setting(
        3,
        "number of consecutive rounds of failed tool calls after which Temper adds a hint to "
        "the prompt",
        ge=1,
    )
    # off by default: it helps some models and harms others; `temper tune` measures that for each
    # model (decision 0027)
    close_out: Literal["off", "structural", "always"] = setting(
        "off",
        "close-out check when a turn ends in text: off, structural (after a tool result that "
        "reports a failure) or always (after every use of tools)",
    )
    close_out_tries: Count = setting(
        1,
        'maximum number of close-out checks per turn; 2 applies only to close_out = "always"',
        ge=1,
        le=2,
    )
    without: list[
        Literal["rescue", "repair", "nudge", "constrained", "respond", "loops", "compaction"]
    ] = setting(
        [],
        "parts to disable, for measurements: rescue, repair, nudge, constrained, respond, "
        "loops, compaction",
    )


class Responses(Section):
    """Stored responses of the Responses API, for `previous_response_id`."""

    store: Literal["memory", "off"] = setting(
        "memory", "memory or off; several workers store responses only if path is set"
    )
    path: File = setting(
        None, "SQLite file to store responses in; it survives restarts and is shared by all workers"
    )
    store_seconds: Seconds = setting(
        3600.0, "time that a response is stored after its last use, in seconds"
    )
    store_bytes: Count = setting(
        64 * 2**20, "maximum size of all stored responses, in bytes", ge=2**20
    )
    store_responses: Count = setting(1000, "maximum number of stored responses", ge=1)


class State(Section):
    """Idempotency keys and responses shared by replicas in Valkey or Redis (extra `state`)."""

    url: StateUrl = setting(
        None,
        "address of the store: valkey://, valkeys:// (TLS), redis://, rediss:// (TLS) or "
        "unix://; ?namespace=NAME sets the prefix of all keys, by default temper",
    )
    secret: Secrets = setting(
        None,
        "secret that encrypts the stored values, the same for all replicas; required unless "
        "the store is on loopback or a Unix socket. For rotation, append the previous secret "
        "after a space: it is used only to decrypt",
    )
    timeout_ms: Count = setting(
        200, "time limit for an operation of the store, in milliseconds", ge=10, le=10_000
    )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets: the first secret encrypts and decrypts, the second only decrypts."""
        # a store on this machine needs no secret, but its values are sealed in the same way
        return ("",) if self.secret is None else (*self.secret.get_secret_value().split(),)


class Context(Section):
    """Compaction: shortens long conversations, so that they fit into the context window."""

    compaction: Literal["auto", "report", "off"] = setting(
        "auto", "auto, off, or report (count tokens and warn, but send the prompt unchanged)"
    )
    strategy: Literal["tiered", "sliding", "none"] = setting(
        "tiered", "strategy: tiered (preserves the prompt cache), sliding (for comparison) or none"
    )
    budget: Literal["backend", "manual", "full", "fast"] = setting(
        "backend",
        "source of the window size: backend, manual (window_tokens), full (the largest that "
        "fits in memory) or fast (half of full)",
    )
    window_tokens: Count = setting(
        0, "maximum part of the window to use, in tokens; 0 means all of it", ge=0
    )
    # below 1.0 because sizes may be estimates; exact counts need no margin (decision 0020)
    high: Share = setting(
        0.9,
        "share of the prompt budget at which compaction starts; the default is 1.0 if the engine "
        "counts tokens exactly",
    )
    low: Share = setting(0.5, "compaction shortens the prompt to this share of the prompt budget")
    recent_groups: Count = setting(
        3, "number of latest tool calls whose results are never shortened", ge=1
    )
    summarized_tools: Count = setting(
        0,
        "number of tools from which the prompt contains only summaries of the tools; the model "
        "reads full definitions with find_tools. 0 disables it",
        ge=0,
    )
    recall: bool = setting(
        False,
        "let the model search the messages and results that compaction removed or shortened, with "
        "the tool recall",
    )
    never_clear: list[str] = setting([], "names of tools whose results are never shortened")
    reread_seconds: NonNegative = setting(
        5,
        "log why the engine read a prompt again if that took at least this long, in seconds",
    )
    reasoning: Literal["auto", "on", "off"] = setting(
        "auto",
        "restore reasoning that a client omits from its history: auto (if the chat template "
        "uses it, the engine is known to accept it, and Temper is a single process), on (also for "
        "other engines and several processes) or off",
    )


class Profile(Section):
    """The model profile; `temper models` shows why a profile was detected."""

    name: Name = setting(None, "profile to use instead of the detected one")
    folder: File = setting(
        None,
        "folder with additional profiles (*.toml), which take precedence over the built-in ones",
    )
    tools_in_prompt: Literal[
        "auto", "never", "hermes", "mistral", "gemma", "llama3", "react", "json"
    ] = setting(
        "auto",
        "format of the tool description in the prompt when the chat template ignores tools: "
        "auto, never, hermes, mistral, gemma, llama3, react or json",
    )
    replay: Literal["auto", "none", "last", "full"] = setting(
        "auto",
        "earlier reasoning to send back to the model: auto, none, last (since the last user "
        "message) or full",
    )
    thinking: Literal["auto", "on", "off"] = setting(
        "auto",
        "reasoning for requests that do not set it: on, off, or auto (the model's default)",
    )
    effort: Literal["auto", Effort] = setting(
        "auto",
        "reasoning effort for requests that do not set it: minimal, low, medium, high, xhigh, "
        "max, none, no_think, or auto (the model's default)",
    )


class Logging(Section):
    """Log output on standard error, one line per request."""

    format: Literal["auto", "text", "json"] = setting(
        "auto", "log format: text, json, or auto (text on a terminal, else json)"
    )
    level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "minimum level of log lines: debug, info, warning or error"
    )


class Metrics(Section):
    """The `/metrics` endpoint for Prometheus and inference gateways."""

    enabled: bool = setting(True, "count requests and serve /metrics")
    open: bool = setting(False, "serve /metrics without an API key")


class Ui(Section):
    """The operator's dashboard at `/ui`."""

    enabled: bool = setting(True, "serve the dashboard")
    owners: list[str] = setting(
        [], "names in api_keys_file whose keys may open the dashboard, in addition to api_key"
    )
    read_only: bool = setting(
        False, "disable canceling requests and approving calls on the dashboard"
    )


class Tracing(Section):
    """Export of OpenTelemetry spans (extra `otel`)."""

    url: Collector = setting(None, "address of an OTLP collector, e.g. http://127.0.0.1:4318")


class Recording(Section):
    """Recording of complete requests and raw replies, for `temper replay`."""

    path: File = setting(
        None, "file to record every chat request and reply in, including message contents"
    )
    max_bytes: Count = setting(
        268_435_456, "maximum size of the recording, in bytes; recording stops there", ge=1024
    )
    keep_bytes: Count = setting(
        0, "memory for the exchanges that the dashboard shows, in bytes; 0 disables them", ge=0
    )
