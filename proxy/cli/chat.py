"""`temper chat`: an interactive conversation with a model, with guardrails and tools.

It uses an `Agent` of the library with the settings of `temper serve`, without HTTP.
"""

import asyncio
import importlib.util
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from inspect import isfunction
from pathlib import Path
from types import ModuleType

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter

from proxy.agents.agent import Agent
from proxy.agents.model import Model
from proxy.agents.results import AskedAgain, Progress, RunEvent, Text, Thought
from proxy.agents.stream import Hooks, RunStream
from proxy.cli.output import echo
from proxy.cli.running import Flags
from proxy.cli.running_requests import describe_reading, describe_retry
from proxy.cli.signals import INTERRUPTED, end_process, ending_signals
from proxy.cli.status_line import StatusLine, open_status_line
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool, ToolCall
from proxy.dialects.lenient_json import as_object
from proxy.errors import (
    BackendFailed,
    InvalidConfiguration,
    InvalidRequest,
    RunCancelled,
    RunStopped,
)
from proxy.mcp.confirmations import Decision
from proxy.mcp.definitions import ServedTool
from proxy.mcp.execution import OperatorTools
from proxy.mcp.hosting import specs_of
from proxy.mcp.specification import CallLimits
from proxy.observability.sentences import cut, summarize, visible, visible_json
from proxy.serving.opening import find_backend
from proxy.settings import Settings
from proxy.systems import block_on_terminal, handle_signal
from proxy.tools.executor import ToolFinished, ToolStarted
from proxy.tools.function import FunctionTool
from proxy.tools.run import Stop
from proxy.tools.signature import Function
from proxy.tools.toolset import Toolset
from proxy.tools.transcript import Conversation

_START_SECONDS = 30.0  # for tool servers: `uvx` may have to install a server before it starts
_SHOWN = 60  # the most characters that are shown of an argument or a result
# the most characters of a call in the question for approval; a longer call is printed above it
_PROMPT = 240
COMMANDS = {
    "/tools": "list the tools",
    "/retry": "send the last message again",
    "/new": "start a new conversation",
    "/help": "list the commands",
    "/quit": "quit (also Ctrl-D)",
}
_ENDS = ("/quit", "/exit")  # /help lists only /quit


def read_tools(files: Iterable[Path]) -> Toolset:
    """Return the tools of Python files: the functions marked as tools, else all public functions.

    Raises `InvalidConfiguration` for a file without tools or with an error, and for
    duplicate names.
    """
    tools = Toolset()
    for file in files:
        tools_of_file = [*_tools_in(_run_file(file))]
        if not tools_of_file:
            raise InvalidConfiguration(
                "--tools",
                f"{file} has no public function. Define one, or mark a function with @tool.",
            )
        try:
            for function in tools_of_file:
                tools.add(function)
        except (TypeError, ValueError) as error:
            raise InvalidConfiguration("--tools", f"{file}: {error}") from error
    return tools


def _run_file(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_tools_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise InvalidConfiguration("--tools", f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # needed to resolve annotations
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # user code may raise anything
        problem = f"{file} failed: {type(error).__name__}: {error}"
        raise InvalidConfiguration("--tools", problem) from error
    return module


def _tools_in(module: ModuleType) -> Iterator[FunctionTool | Function]:
    members: list[object] = [
        member for name, member in vars(module).items() if not name.startswith("_")
    ]
    marked = [member for member in members if isinstance(member, FunctionTool)]
    marked += [tool for member in members if isinstance(member, Toolset) for tool in member]
    if marked:
        yield from dict.fromkeys(marked)  # once each: a tool may be in the file and in a Toolset
    else:
        functions = (
            member
            for member in members
            if isfunction(member) and member.__module__ == module.__name__
        )
        yield from functions


@dataclass(slots=True)
class ChatWriter:
    """Writes streamed answers and dim notes; `status` shows the current activity."""

    line_is_open: bool = False
    shows_reasoning: bool = False
    status: StatusLine = field(default_factory=StatusLine)
    running_tools: int = 0  # includes tools of stopped answers, because a thread cannot be ended

    def show(self, event: RunEvent) -> None:
        match event:
            case Text(text):
                self._write(text)
            case Thought(text) if self.shows_reasoning:
                self._write(text, dim=True)
            case ToolStarted(call, _):
                self.note(describe_call(call, _SHOWN))
                self.running_tools += 1
                self.status.begin(f"running {call.name}")
            case ToolFinished(outcome):
                self.running_tools -= 1
                self.note(f"{outcome.call.name}: {cut(outcome.text.strip(), _SHOWN)}")
            case AskedAgain():
                self.end_line()
            case _:
                pass

    def show_progress(self, progress: Progress) -> None:
        """Show the progress of an attempt in the status line, until the model produces output."""
        is_start = progress.stage == "reading" and progress.share is None
        if progress.defect:
            if is_start:  # the line stays while the retry is generated
                self.status.begin(describe_retry(progress.defect))
        elif progress.share is not None:
            self.status.update(describe_reading(progress.share))
        else:
            self.status.begin(describe_reading(None) if is_start else "generating")

    def note(self, text: str) -> None:
        self.end_line()
        echo(f"  {text}", dim=True)

    def fail(self, text: str) -> None:
        self.end_line()
        echo(f"  {text}", fg="red")

    def end_line(self) -> None:
        self.status.clear()
        if self.line_is_open:
            echo()
            self.status.follow("\n")
        self.line_is_open = False

    def _write(self, text: str, *, dim: bool = False) -> None:
        escaped = visible(text, has_lines=True)
        self.status.clear()
        echo(escaped, nl=False, has_lines=True, dim=dim or None)
        self.status.follow(escaped)
        self.line_is_open = not escaped.endswith("\n") if escaped else self.line_is_open


def describe_call(call: ToolCall, longest: int | None = None) -> str:
    """Format a call on one line, with names and values cut to `longest` characters (None: no cut).

    If an argument's name is not an identifier, such as `a=1, b`, it is written as JSON, because it
    would look like two arguments without quotes.
    """

    def shorten(text: str) -> str:
        return text if longest is None else cut(text, longest)

    try:
        arguments = json.parse(call.arguments or "{}")
    except ValueError:
        arguments = None
    if isinstance(arguments, dict):
        arguments_text = ", ".join(
            f"{shorten(name if name.isidentifier() else visible_json(name, indent=0))}="
            f"{shorten(visible_json(value, indent=0))}"
            for name, value in arguments.items()
        )
    else:
        arguments_text = shorten(call.arguments)
    return visible(f"{shorten(call.name)}({arguments_text})")


class Chat:
    """A conversation on a terminal; `read` prompts for a line.

    `read` raises EOFError at the end of input, and KeyboardInterrupt for a canceled line.
    """

    def __init__(
        self,
        read: Callable[[str], Awaitable[str]],
        *,
        shows_reasoning: bool,
        status: StatusLine | None = None,
    ) -> None:
        self._read = read
        self._status = status or StatusLine()
        self._writer = ChatWriter(shows_reasoning=shows_reasoning, status=self._status)
        self._conversation = Conversation()
        self._last_message: tuple[int, str] | None = None  # index and text of the last message
        self._stream: RunStream[str] | None = None
        self._is_interrupted = False  # True if Ctrl-C was pressed since the last line was read

    @property
    def has_abandoned_tools(self) -> bool:
        """True if an answer was stopped while a tool ran; the tool's thread may still run."""
        return self._stream is None and self._writer.running_tools > 0

    async def talk(self, agent: Agent) -> None:
        """Answer messages until the user quits."""
        self._writer.note(f"{_list_names(agent)} /help lists the commands, Ctrl-D quits.")
        while (line := await self._read_line()) not in _ENDS:
            try:
                if line.startswith("/"):
                    await self._run_command(line, agent)
                elif line:
                    await self.answer(line, agent)
            except (BackendFailed, InvalidRequest) as error:  # the next message may succeed
                self._writer.fail(str(error))

    async def _read_line(self) -> str:
        """Read a line; returns /quit after Ctrl-D, or after Ctrl-C twice in a row."""
        while True:
            try:
                line = (await self._read("> ")).strip()
            except EOFError:
                return _ENDS[0]
            except KeyboardInterrupt:
                if self._is_interrupted:
                    return _ENDS[0]
                self._is_interrupted = True
                self._writer.note("press Ctrl-C again to quit")
            else:
                self._is_interrupted = False
                return line

    async def answer(self, question: str, agent: Agent) -> bool:
        """Print the answer to a message; returns False if the run stopped without an answer.

        Raises `BackendFailed` and `InvalidRequest`.
        """
        self._last_message = len(self._conversation), question
        hooks = Hooks(approve=self._approve, on_progress=self._writer.show_progress)
        self._status.begin("waiting for the model")
        running = agent.stream(question, conversation=self._conversation, hooks=hooks)
        try:
            async with running as self._stream:
                async for event in self._stream:
                    self._writer.show(event)
                result = self._stream.result
        finally:
            self._stream = None
            self._status.end()
            self._writer.end_line()
        if repaired := summarize(result.facts):
            self._writer.note(repaired)
        try:
            result.raise_for_stop()
        except RunCancelled:
            self._writer.note("stopped")
        except RunStopped as error:
            self._writer.fail(str(error))
        return result.stop is Stop.ANSWERED

    def interrupt(self) -> bool:
        """Stop the running answer; returns False if no answer runs or if it is already stopping."""
        if self._stream is None or self._is_interrupted:
            return False
        self._is_interrupted = True
        self._status.begin("stopping")
        self._stream.cancel()
        return True

    async def decide(
        self, tool: ServedTool, call: ToolCall, _arguments: JsonObject | None = None
    ) -> Decision:
        """Ask the user to approve a call of a tool server."""
        del tool
        return Decision.ALLOWED if await self._approve(call) else Decision.REFUSED

    async def _approve(self, call: ToolCall) -> bool:
        # shows the whole call: a model could hide an argument beyond the end of a cut line (F103)
        self._writer.end_line()
        self._status.end()
        described = describe_call(call)
        if len(described) > _PROMPT:  # a prompt of several lines would scroll
            self._writer.note(described)
            described = f"{cut(call.name, _SHOWN)}(...)"
        try:
            answer = await self._read(f"  call {described}? [y/N] ")
        except (EOFError, KeyboardInterrupt):
            return False
        finally:
            self._status.begin(f"running {call.name}")
        return answer.strip().lower() in ("y", "yes")

    async def _run_command(self, line: str, agent: Agent) -> None:
        match line:
            case "/tools":
                for spec in _list_specs(agent):
                    self._writer.note(spec)
            case "/retry" if self._last_message is not None:
                index, question = self._last_message
                self._conversation = self._conversation.fork(index)
                await self.answer(question, agent)
            case "/retry":
                self._writer.fail("there is no message to send again")
            case "/new":
                self._conversation, self._last_message = Conversation(), None
                self._writer.note("new conversation")
            case "/help":
                for command, description in COMMANDS.items():
                    self._writer.note(f"{command:8} {description}")
            case _:
                similar = get_close_matches(line, COMMANDS, 1) or ["/help"]
                self._writer.fail(f"unknown command {line}; did you mean {similar[0]}?")


def _specs(agent: Agent) -> Iterator[Tool]:
    for tools in agent.tools:
        if isinstance(tools, (Toolset, OperatorTools)):
            yield from tools.specs()


def _list_names(agent: Agent) -> str:
    names = ", ".join(spec.name for spec in _specs(agent))
    return f"Tools: {names}." if names else "No tools (see --tools)."


def _list_specs(agent: Agent) -> Iterator[str]:
    for spec in _specs(agent):
        function = as_object(as_object(json.parse(spec.source)).get("function"))
        description = str(function.get("description", "")).partition("\n")[0]
        yield f"{spec.name}  {cut(description, _SHOWN)}".rstrip()
    if not [*_specs(agent)]:
        yield _list_names(agent)


def open_terminal() -> Callable[[str], Awaitable[str]]:
    """Return a function that reads lines, with history and completion on a terminal."""
    if not sys.stdin.isatty():
        # all lines are read now: a blocking read between answers would stop the event loop
        lines = iter(sys.stdin.read().splitlines())

        async def read(_prompt: str) -> str:
            try:
                return next(lines)
            except StopIteration:
                raise EOFError from None

        return read
    commands = WordCompleter([*COMMANDS], sentence=True)
    session: PromptSession[str] = PromptSession(completer=commands, complete_while_typing=True)

    async def read_from_terminal(prompt: str) -> str:
        try:
            # `handle_sigint=True` would replace the handler that stops a running answer
            return await session.prompt_async(prompt, handle_sigint=False)
        finally:
            block_on_terminal()  # uvloop has set the terminal to non-blocking mode

    return read_from_terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """Options of a chat.

    `files` contain tools, and `name` selects a model. If the settings name no server, the chat
    looks for a server at `addresses`. If there is a `question`, the chat ends after its answer.
    """

    files: Sequence[Path] = ()
    addresses: Sequence[str] = ()
    name: str = ""
    instructions: str = ""
    question: str = ""
    shows_reasoning: bool = False


async def open_chat(
    settings: Settings, config: Path | None, flags: Flags, options: ChatOptions
) -> bool:
    """Run a chat, or answer a single question; returns False if that question got no answer.

    `settings` were loaded from `config` and `flags`. Raises `InvalidConfiguration` if a tool
    cannot be used, and `BackendFailed` if the model cannot be used.
    """
    file_tools = read_tools(options.files)
    server = await find_backend(settings, options.addresses, "chat")
    if server is not None:
        flags = {**flags, "backend": {"url": server.url, "kind": server.kind}}
    async with AsyncExitStack() as stack:
        status = stack.enter_context(open_status_line(is_wanted=sys.stdout.isatty()))
        chat = Chat(open_terminal(), shows_reasoning=options.shows_reasoning, status=status)
        stack.push(partial(_abandon_tools, chat, options))
        status.begin("starting tool servers" if settings.mcp else "starting")
        server_tools = await _open_servers(settings, chat, stack)
        model = Model(config=config, name=options.name, settings=flags)
        await stack.enter_async_context(model)
        status.end()
        agent = Agent(model, [file_tools, *server_tools], options.instructions)
        handle_interrupts(chat)
        if options.question:
            return await chat.answer(options.question, agent)
        await chat.talk(agent)
    return True


def _abandon_tools(
    chat: Chat, options: ChatOptions, raised: type[BaseException] | None, *_details: object
) -> None:
    """End the process at once if a tool still runs, because Python would wait for its thread."""
    # any other exception is an error, which the caller prints
    if chat.has_abandoned_tools and raised in (None, asyncio.CancelledError):
        end_process(INTERRUPTED if raised or options.question else 0)


async def _open_servers(
    settings: Settings, chat: Chat, stack: AsyncExitStack
) -> Sequence[OperatorTools]:
    """Start the configured tool servers, and return their tools."""
    if not settings.mcp:
        return ()
    specs = specs_of(settings)  # raises if the MCP SDK is not installed
    from proxy.mcp.fleet import open_fleet  # importing the SDK takes a second

    fleet = await stack.enter_async_context(open_fleet(specs))
    await fleet.wait_settled(_START_SECONDS)
    for name in fleet.names:
        if problem := fleet.condition_of(name)[1]:
            raise InvalidConfiguration(f"mcp.{name}", problem)
    tools = [tool for name in fleet.names for tool in fleet.tools_of(name) or ()]
    section = settings.tools
    limits = CallLimits(section.parallel, section.call_seconds, section.result_chars)
    return (OperatorTools(fleet, tuple(tools), limits, confirm=chat.decide),)


def handle_interrupts(chat: Chat) -> None:
    """Let Ctrl-C stop the running answer, or the whole command if no answer is running."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in a task

    def on_interrupt(_number: int) -> None:
        if not chat.interrupt():
            task.cancel()

    if signal.SIGINT in ending_signals():
        handle_signal(signal.SIGINT, on_interrupt)
