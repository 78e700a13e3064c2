"""Shows the calls that a backend recognised while the model is still writing them.

A call's name goes out when nothing but its arguments can be wrong with it, and then the arguments
as `arguments_release` lets them out. The next call waits until the one before is settled; from the
first doubt on, everything waits for the verdict on the whole reply.
"""

from proxy.conversation.replies import ReplyEvent, ToolCallArgumentsDelta, ToolCallStarted
from proxy.conversation.tools import Tool
from proxy.guardrails.offer import OfferedTools
from proxy.guardrails.order import is_free
from proxy.guardrails.schemas import arguments
from proxy.guardrails.schemas.members import Members
from proxy.inference.sent_answer import ShownAnswer
from proxy.inference.stream_gate.arguments import ArgumentsRelease


class CallsRelease:
    """Shows the calls of one reply, one after the other."""

    def __init__(self, offer: OfferedTools, shown: ShownAnswer) -> None:
        self._offer = offer
        self._shown = shown
        self._is_over = False
        self._index = -1
        self._tool: Tool | None = None
        self._written: list[str] = []
        self._release: ArgumentsRelease | None = None

    def take(self, event: ToolCallStarted | ToolCallArgumentsDelta) -> list[ReplyEvent]:
        """Take what came of a call; returns what the client may see."""
        if self._is_over:
            return []
        if isinstance(event, ToolCallStarted):
            return [] if self._offer.is_respond(event.name) else self._start(event)
        if self._release is None or event.index != self._index:
            return []
        self._written.append(event.text)
        released = self._release.feed(event.text)
        open_call = self._shown.open_call
        if not released or open_call is None:
            return []
        return [ToolCallArgumentsDelta(open_call.index, released)]

    def _start(self, started: ToolCallStarted) -> list[ReplyEvent]:
        settled = self._settle()
        tool = None if settled is None else self._showable(started.name)
        if tool is None:
            self._is_over = True
            return settled or []
        self._index, self._tool = started.index, tool
        self._written.clear()
        self._release = ArgumentsRelease(Members(tool.parameters))
        call = self._shown.start_call(started.id or "", tool.name, self._release.shown)
        return [*(settled or []), call]

    def _showable(self, name: str) -> Tool | None:
        """Find the tool of a call whose name may be shown before its arguments are known."""
        offer = self._offer
        tool = offer.tool_named(name)
        if tool is None or not is_free(tool.name, offer):
            return None
        is_surplus = not offer.parallel and self._release is not None
        return None if is_surplus or not offer.may_call(tool.name) else tool

    def _settle(self) -> list[ReplyEvent] | None:
        """End the call before, if there is one; None where it has to wait for the verdict."""
        if self._tool is None:
            return []
        checked = arguments.check(self._tool, "".join(self._written))
        if not isinstance(checked, arguments.ValidArguments):
            return None
        return self._shown.close_call(checked.text)
