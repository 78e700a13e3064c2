"""Checks of the server itself: is it there, what is it, and who else gets in."""

from urllib.parse import urlsplit

from proxy.conversation.json import JsonObject
from proxy.dialects.lenient_json import member
from proxy.doctor.target import Finding, Target, fail, ok, skip, warn
from proxy.settings import is_loopback

_STRANGE_ORIGIN = "https://temper-doctor.invalid"
_SMALL_WINDOW = 8192
_MODELS = "/v1/models"
_VERSIONS = (
    ("/props", "build_info", "llama-server, build"),
    ("/api/version", "version", "Ollama"),
    ("/version", "version", "version"),
)


async def readiness(target: Target) -> Finding:
    told = await target.temper.get("/health")
    if told.is_success:
        is_asleep = (await target.look("/props")).document.get("is_sleeping") is True
        state = "loads its model for whoever asks" if is_asleep else "has its model loaded"
        return ok(f"{target.direct.base_url} answers and {state}")
    if member(told.json(), "error", "code") == "model_loading":
        return fail(
            f"{target.direct.base_url} is still loading its model",
            "wait for it, and look into its log if that takes minutes",
        )
    return fail(
        f"{target.direct.base_url} does not answer",
        "start it, or correct backend.url; curl the address from this very machine",
    )


async def version(target: Target) -> Finding:
    listed = await target.look(_MODELS)
    if listed.status in (401, 403):
        return fail(f"it wants a key: {_MODELS} says {listed.error_message}", "set backend.api_key")
    behind = member(listed.document, "data", 0, "engine")  # no engine tells of an engine
    if isinstance(behind, dict):
        return warn(
            f"this is a Temper, in front of {behind.get('name')}, which is examined through it",
            "name the server behind it with --backend-url if you started that yourself",
        )
    for path, name, engine in _VERSIONS:
        told = (await target.look(path)).document.get(name)
        if isinstance(told, str):
            return ok(f"{engine} {told}")
    if listed.status < 400 and "data" in listed.document:
        return ok("an OpenAI-compatible server that does not tell its version")
    return fail(
        f"this is no server for models: {_MODELS} says {listed.error_message}",
        "correct backend.url, or set backend.api_key if it wants a key",
    )


async def window(target: Target) -> Finding:
    real = target.known.window
    if real is None:
        return skip("it does not tell its window: set context.window_tokens")
    asked = target.asked_window
    if asked is not None and real < asked:
        return fail(
            f"the window is {real} tokens, and {asked} were wanted",
            "the server caps it at what the model was trained for, or shares it among its slots: "
            "lower the setting, or start it with -c and -np",
        )
    if real < _SMALL_WINDOW:
        return warn(
            f"the window is {real} tokens, and agents begin with 5,000 to 18,000",
            f"start the server with at least {_window_option(target.known.engine)}",
            window=real,
        )
    return ok(f"the window is {real} tokens", window=real)


def _window_option(engine: str) -> str:
    match engine:
        case "vLLM":
            return f"--max-model-len {_SMALL_WINDOW}"
        case "SGLang":
            return f"--context-length {_SMALL_WINDOW}"
        case "Ollama":
            return f"OLLAMA_CONTEXT_LENGTH={_SMALL_WINDOW}"
        case _:
            return f"-c {_SMALL_WINDOW} for each slot"


async def template(target: Target) -> Finding:
    """Have the chat template render a tool, and look for it."""
    name = "temper_doctor_probe"
    tool: JsonObject = {"name": name, "description": "A probe.", "parameters": {"type": "object"}}
    answer = await target.send(
        "/apply-template",
        {
            "messages": [{"role": "user", "content": "Hello."}],
            "tools": [{"type": "function", "function": tool}],
        },
    )
    prompt = answer.document.get("prompt")
    if not isinstance(prompt, str):
        return skip("this server does not show what its chat template makes of a request")
    if name in prompt:
        return ok("the chat template tells the model of its tools", template_has_tools=True)
    if target.known.quirks.convention:
        return warn(
            "the chat template leaves tools out; Temper describes them in the prompt "
            f"({target.known.quirks.convention})",
            "use a GGUF with a template for tools, or --chat-template-file, if there is one",
        )
    return fail(
        "the chat template leaves tools out: the model never hears of them",
        "set profile.tools_in_prompt, or start the server with a template that knows tools",
    )


async def open_doors(target: Target) -> Finding:
    """Ask as a web page would, without a key, from elsewhere."""
    page = await target.look(_MODELS, {"origin": _STRANGE_ORIGIN})
    if page.status in (401, 403):
        return ok("it wants a key, so no web page gets in")
    allowed = page.headers.get("access-control-allow-origin", "")
    if page.status < 400 and allowed in ("*", _STRANGE_ORIGIN):
        return warn(
            "any web page that a browser here opens may use it (CORS)",
            "start it with --api-key and tell Temper (backend.api_key); "
            "llama-server: --cors-origins localhost, Ollama: OLLAMA_ORIGINS",
        )
    rebound = await target.look(_MODELS, {"host": "temper-doctor.invalid"})
    if rebound.status < 400 and _is_near(target):
        return warn(
            "it answers to any Host name, so a web page can reach it by DNS rebinding",
            "start it with --api-key and tell Temper (backend.api_key)",
        )
    return ok("web pages from elsewhere are kept out")


async def key(target: Target) -> Finding:
    if _is_near(target):
        return ok("requests do not leave this machine")
    url = target.direct.base_url
    if not target.key and (await target.look(_MODELS, {})).status < 400:
        return warn(
            f"{url} can be used by everybody who reaches it",
            "start it with --api-key and set backend.api_key",
        )
    if url.scheme == "http":
        return warn(f"requests travel to {url} unencrypted", "use https or a tunnel")
    return ok(f"{url} wants a key")


def _is_near(target: Target) -> bool:
    return is_loopback(urlsplit(str(target.direct.base_url)).hostname or "")
