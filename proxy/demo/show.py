"""`temper demo`: six requests to a real llama-server, bare and through Temper, side by side."""

import asyncio
import contextlib
import importlib.util
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.api.app import Serving, create_app
from proxy.api.server import listen, serving, url_of
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import Connection
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.demo.scenarios import SCENARIOS, SCRIPTS, request_for
from proxy.errors import InvalidConfiguration
from proxy.processes.llama_server import (
    LaunchPlan,
    RunningServer,
    Stage,
    choose_program,
    start_llama_server,
)

_CONTEXT_TOKENS = 4096
_ANSWER_SECONDS = 60.0
_GRACE_SECONDS = 2.0
_CHAT = "/v1/chat/completions"
_INTRODUCTION = (
    "A real llama-server runs a [bold]hand-written[/bold] model, which is not a language model: "
    "this shows what Temper does with such answers, not how often a real model gives them.\n"
)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a client got: the answer in words, whether it was a call, and what Temper reports."""

    text: str
    is_call: bool
    report: str

    def rendered(self) -> Text:
        """Return it as a cell of the table."""
        cell = Text(self.text, "green" if self.is_call else "red")
        return cell.append(f"\n({self.report})", "dim") if self.report else cell


async def demonstrate(console: Console, *, port: int, keeps_serving: bool = True) -> None:
    """Show the table, then serve on until a signal ends it.

    A taken `port` is replaced by a free one. Raises `ProcessFailed` kinds of errors, also where
    the `embedded` extra is missing.
    """
    console.print(_INTRODUCTION)
    with tempfile.TemporaryDirectory(prefix="temper-demo-") as folder:
        async with contextlib.AsyncExitStack() as stack:
            with console.status("Writing the model ...") as status:
                program = choose_program(None, has_embedded=_has_embedded())
                model = await asyncio.to_thread(_write_model, Path(folder) / "demo.gguf")
                plan = LaunchPlan(program, model, _CONTEXT_TOKENS, slots=2, alias="demo")

                def show_stage(stage: Stage) -> None:
                    status.update(f"llama-server: {stage.value} ...")

                starting = start_llama_server(plan, on_stage=show_stage)
                running = await stack.enter_async_context(starting)
            await _serve_and_show(console, running, port, keeps_serving=keeps_serving)


async def _serve_and_show(
    console: Console, running: RunningServer, port: int, *, keeps_serving: bool
) -> None:
    backend = LlamaServer(Connection(running.base_url, running.api_key))
    with contextlib.closing(_listen(port)) as listening:
        url = url_of(listening)
        app = create_app(backend, Serving())
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(backend.close)
            server = await stack.enter_async_context(serving(app, listening, _GRACE_SECONDS))
            console.print(await _compare(console, running, url))
            if keeps_serving:
                _print_next_steps(console, url)
                await server


async def _compare(console: Console, running: RunningServer, url: str) -> Table:
    """Ask everything twice and return the table."""
    table = Table(show_lines=True, title_justify="left")
    for heading in ("what goes wrong", "the model wrote", "without Temper", "with Temper"):
        table.add_column(heading, ratio=3, overflow="fold")
    bare = {"authorization": f"Bearer {running.api_key}"}
    with console.status("Asking ...") as status:
        for scenario in SCENARIOS:
            status.update(f"Asking: {scenario.prompt}")
            without = await _ask(running.base_url, scenario.prompt, bare)
            through = await _ask(url, scenario.prompt, {})
            table.add_row(
                Text(scenario.title, "bold"),
                Text(scenario.written, "dim"),
                without.rendered(),
                through.rendered(),
            )
    return table


async def _ask(url: str, prompt: str, headers: dict[str, str]) -> Shown:
    async with httpx.AsyncClient(timeout=_ANSWER_SECONDS, trust_env=False) as client:
        answer = await client.post(url + _CHAT, json=request_for(prompt), headers=headers)
    return shown(json.parse(answer.content), _report(answer.headers))


def _report(headers: httpx.Headers) -> str:
    """Say what Temper did, from the headers of its answer."""
    if "x-temper-attempts" not in headers:
        return ""
    asked = int(headers["x-temper-attempts"])
    done = [] if asked == 1 else [f"asked {asked} times"]
    done += [part for part in headers.get("x-temper-repairs", "").split(";") if part]
    return ", ".join(done)


def shown(document: JsonValue, report: str) -> Shown:
    """Read what a client sees in a chat completion, or in an error."""
    message = _at(document, "choices", 0, "message")
    name = _at(message, "tool_calls", 0, "function", "name")
    if isinstance(name, str):
        arguments = _at(message, "tool_calls", 0, "function", "arguments")
        return Shown(f"call {name}({arguments})", is_call=True, report=report)
    text = _at(message, "content")
    error = _at(document, "error", "message")
    said = f"text: {text}" if error is None else f"error: {error}"
    return Shown(said, is_call=False, report=report)


def _at(value: JsonValue, *path: str | int) -> JsonValue:
    """Follow a path into a JSON value; None where it leads nowhere."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def _listen(port: int) -> socket.socket:
    try:
        return listen("127.0.0.1", port)
    except InvalidConfiguration:
        return listen("127.0.0.1", 0)


def _has_embedded() -> bool:
    return all(importlib.util.find_spec(name) for name in ("xllamacpp", "gguf", "numpy"))


def _write_model(path: Path) -> Path:
    from proxy.demo.scripted_model import build_scripted_model  # needs the embedded extra

    build_scripted_model(path, SCRIPTS, context_tokens=_CONTEXT_TOKENS)
    return path


def _print_next_steps(console: Console, url: str) -> None:
    """Print lines that can be pasted; `soft_wrap` keeps them in one piece."""
    console.print("\nTemper serves on. Try it (Ctrl-C ends it):\n", style="bold")
    for prompt, is_stream in ((SCENARIOS[0].prompt, False), (SCENARIOS[3].prompt, True)):
        body = json.dump_text(request_for(prompt, stream=is_stream))
        line = f"curl -sN {url}{_CHAT} -H 'content-type: application/json' -d '{body}'"
        console.print(line, soft_wrap=True, markup=False)
        console.print()
    console.print(f"curl -s {url}/v1/models", soft_wrap=True, markup=False)
