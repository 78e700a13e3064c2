"""Checks of the server: reachability, version, window, chat template and access control."""

from urllib.parse import urlsplit

from proxy.conversation.json import JsonObject
from proxy.dialects.lenient_json import member
from proxy.doctor.target import Finding, Target, fail, ok, skip, warn
from proxy.settings import is_loopback

_FOREIGN_ORIGIN = "https://temper-doctor.invalid"  # .invalid is reserved (RFC 2606)
_SMALL_WINDOW = 8192  # tokens; the first prompt of an agent has 5,000 to 18,000
_MODELS = "/v1/models"
# path, member of the response, and the text before its value
_VERSIONS = (
    ("/props", "build_info", "llama-server, build"),
    ("/api/version", "version", "Ollama"),
    ("/version", "version", "version"),
)


async def check_readiness(target: Target) -> Finding:
    health = await target.temper.get("/health")
    if health.is_success:
        is_asleep = (await target.fetch("/props")).document.get("is_sleeping") is True
        state = "loads its model on demand" if is_asleep else "has its model loaded"
        return ok(f"{target.direct.base_url} is reachable and {state}")
    if member(health.json(), "error", "code") == "model_loading":
        return fail(
            f"{target.direct.base_url} is still loading its model",
            "wait; if it takes minutes, check the server's log",
        )
    return fail(
        f"{target.direct.base_url} is not reachable",
        "start the server, or correct backend.url",
    )


async def check_version(target: Target) -> Finding:
    listed = await target.fetch(_MODELS)
    if listed.status in (401, 403):
        return fail(
            f"the server requires a key: {_MODELS} returned {listed.error_message}",
            "set backend.api_key",
        )
    engine = member(listed.document, "data", 0, "engine")  # only Temper reports an engine
    if isinstance(engine, dict):
        return warn(
            f"this is a Temper in front of {engine.get('name')}, which is checked through it",
            "to check that server directly, pass its address with --backend-url",
        )
    for path, name, title in _VERSIONS:
        version_text = (await target.fetch(path)).document.get(name)
        if isinstance(version_text, str):
            return ok(f"{title} {version_text}")
    if listed.status < 400 and "data" in listed.document:
        return ok("an OpenAI-compatible server that does not report its version")
    return fail(
        f"this is not a model server: {_MODELS} returned {listed.error_message}",
        "correct backend.url, or set backend.api_key if the server requires a key",
    )


async def check_window(target: Target) -> Finding:
    # the server may have reduced the requested window without an error
    actual = target.known.window
    if actual is None:
        return skip("the server does not report its window; set context.window_tokens")
    requested = target.requested_window
    if requested is not None and actual < requested:
        return fail(
            f"the window is {actual} tokens, but {requested} were requested",
            "the server limits it to the model's training window, or divides it among its slots; "
            "lower the setting, or start the server with -c and -np",
        )
    if actual < _SMALL_WINDOW:
        return warn(
            f"the window is {actual} tokens; the first prompt of an agent has 5,000 to 18,000",
            f"start the server with at least {_window_option(target.known.engine)}",
            window=actual,
        )
    return ok(f"the window is {actual} tokens", window=actual)


def _window_option(engine: str) -> str:
    match engine:
        case "vLLM":
            return f"--max-model-len {_SMALL_WINDOW}"
        case "SGLang":
            return f"--context-length {_SMALL_WINDOW}"
        case "Ollama":
            return f"OLLAMA_CONTEXT_LENGTH={_SMALL_WINDOW}"
        case _:
            return f"-c {_SMALL_WINDOW} per slot"


async def check_template(target: Target) -> Finding:
    """Render a request with a tool; the tool's name must occur in the prompt."""
    name = "temper_doctor_probe"
    tool: JsonObject = {"name": name, "description": "A probe.", "parameters": {"type": "object"}}
    answer = await target.post(
        "/apply-template",
        {
            "messages": [{"role": "user", "content": "Hello."}],
            "tools": [{"type": "function", "function": tool}],
        },
    )
    prompt = answer.document.get("prompt")
    if not isinstance(prompt, str):
        return skip("this server does not show the rendered prompt")
    if name in prompt:
        return ok("the chat template renders tools", template_has_tools=True)
    if target.known.quirks.convention:
        return warn(
            "the chat template ignores tools; Temper describes them in the prompt "
            f"({target.known.quirks.convention})",
            "if possible, use a GGUF with a tool template, or --chat-template-file",
        )
    return fail(
        "the chat template ignores tools, so the model does not receive them",
        "set profile.tools_in_prompt, or start the server with a template that renders tools",
    )


async def check_web_pages(target: Target) -> Finding:
    """Send a request without a key and with the Origin header of a foreign web page.

    A web page can make a browser send such requests to any address, including loopback.
    """
    page = await target.fetch(_MODELS, {"origin": _FOREIGN_ORIGIN})
    if page.status in (401, 403):
        return ok("the server requires a key, so web pages cannot use it")
    allowed = page.headers.get("access-control-allow-origin", "")
    if page.status < 400 and allowed in ("*", _FOREIGN_ORIGIN):
        return warn(
            "any web page in a browser on this machine can use the server (CORS)",
            "start it with --api-key and set backend.api_key; "
            "llama-server: --cors-origins localhost, Ollama: OLLAMA_ORIGINS",
        )
    rebound = await target.fetch(_MODELS, {"host": "temper-doctor.invalid"})
    if rebound.status < 400 and _is_local(target):
        return warn(
            "the server accepts any Host header, so web pages can reach it by DNS rebinding",
            "start it with --api-key and set backend.api_key",
        )
    return ok("requests of foreign web pages are rejected")


async def check_key(target: Target) -> Finding:
    if _is_local(target):
        return ok("requests do not leave this machine")
    url = target.direct.base_url
    if not target.key and (await target.fetch(_MODELS, {})).status < 400:
        return warn(
            f"{url} accepts requests without a key",
            "start it with --api-key and set backend.api_key",
        )
    if url.scheme == "http":
        return warn(f"requests to {url} are not encrypted", "use https or a tunnel")
    return ok(f"{url} requires a key")


def _is_local(target: Target) -> bool:
    return is_loopback(urlsplit(str(target.direct.base_url)).hostname or "")
