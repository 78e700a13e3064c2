"""Checks for a client: requests in its API dialect, and its configuration."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from proxy.conversation.json import JsonObject, JsonValue
from proxy.doctor.exchanges import REPORT
from proxy.doctor.target import Finding, Target, fail, ok, warn
from proxy.launch.agents import (
    LEAST_WINDOW,
    NO_KEY,
    Endpoint,
    as_exports,
    as_toml,
    claude_environment,
    codex_settings,
)

_QUESTION = "Say OK."
_REQUEST = "Call the tool `report` and say that you are fine."
_ALL_ADDRESSES = ("0.0.0.0", "::", "")  # noqa: S104 - only compared with the setting
_LOG = "check the server's log"


@dataclass(frozen=True, slots=True)
class Client:
    """A client, with test requests in its API dialect, sent to `path`.

    `answer` requests text. `call` requests a streamed tool call: the stream must contain `mark`,
    and the last event of the stream must contain `end`. `configuration` returns the client's
    configuration, which is printed after `instruction`. If the model's name begins with one of
    `prefixes`, the client assumes that the model is a hosted model, with another window and other
    features.
    """

    title: str
    path: str
    answer: JsonObject
    call: JsonObject
    mark: bytes
    end: bytes
    prefixes: tuple[str, ...]
    instruction: str
    configuration: Callable[[Target, int | None], str]

    async def check_answer(self, target: Target) -> Finding:
        response = await target.post_to_temper(self.answer, path=self.path)
        if response.status >= 400:
            return fail(f"{self.path} failed: {response.error_message}", _LOG)
        return ok(f"{self.path} works")

    async def check_call(self, target: Target) -> Finding:
        body: JsonObject = {"model": target.model, "stream": True, **self.call}
        response = await target.temper.post(self.path, json=body)
        if response.is_error or self.end not in response.content:
            return fail(f"a streamed call failed: {response.text[-200:]}", _LOG)
        if self.mark not in response.content:
            return fail(
                "no valid call was received",
                "check with 'temper models' that the model supports tools",
            )
        return ok("a streamed call was received completely")

    async def check_window(self, target: Target) -> Finding:
        """Check that the window is large enough, and that no hosted model has the model's name."""
        window = target.known.window
        if target.model.startswith(self.prefixes):
            return warn(
                f"{self.title} mistakes {target.model!r} for a hosted model of that name",
                "serve the model under another name, e.g. with model.alias",
            )
        if window is None:
            return warn("the window is unknown", "set context.window_tokens")
        if window < LEAST_WINDOW:
            return warn(
                f"the window has {window} tokens; the first request takes about 12000",
                f"use a window of at least {LEAST_WINDOW} (model.context_tokens, or --ctx-size)",
            )
        return ok(f"the window has {window} tokens")

    async def show_settings(self, target: Target) -> Finding:
        return ok(self.instruction, self.configuration(target, target.known.window))


def _environment(target: Target, window: int | None) -> str:
    return as_exports(claude_environment(_endpoint(target, window)))


def _config(target: Target, window: int | None) -> str:
    return as_toml(codex_settings(_endpoint(target, window)))


def _endpoint(target: Target, window: int | None) -> Endpoint:
    key = "A-KEY-OF-TEMPER" if _has_keys(target) else NO_KEY
    return Endpoint(_address(target), target.model, window, key)


def _address(target: Target) -> str:
    server = target.settings.server
    host = "127.0.0.1" if server.host in _ALL_ADDRESSES else server.host
    name = f"[{host}]" if ":" in host else host
    # the doctor does not know the free port that port 0 picks
    return f"http://{name}:{server.port or 8367}"


def _has_keys(target: Target) -> bool:
    server = target.settings.server
    return server.api_key is not None or server.api_keys_file is not None


def _user(text: str) -> JsonValue:
    return [{"role": "user", "content": text}]


_ABOUT = {"name": REPORT["name"], "description": REPORT["description"]}

CLIENTS: Mapping[str, Client] = {
    "claude-code": Client(
        "Claude Code",
        "/v1/messages",
        {"messages": _user(_QUESTION), "max_tokens": 64},
        {
            "messages": _user(_REQUEST),
            "max_tokens": 512,
            "tools": [{**_ABOUT, "input_schema": REPORT["parameters"]}],
            "tool_choice": {"type": "any"},
        },
        b'"type":"tool_use"',
        b"event: message_stop",
        ("claude-",),
        "set this in the shell that starts Claude Code:",
        _environment,
    ),
    "codex": Client(
        "Codex",
        "/v1/responses",
        {"input": _QUESTION, "max_output_tokens": 64, "store": False},
        {
            "input": _REQUEST,
            "max_output_tokens": 512,
            "store": False,
            "tools": [{"type": "function", **_ABOUT, "parameters": REPORT["parameters"]}],
            "tool_choice": "required",
        },
        b'"type":"function_call"',
        b"event: response.completed",
        ("gpt-", "codex-"),
        "write this into ~/.codex/config.toml:",
        _config,
    ),
}
