"""Failures of small models after tools have run, and correct replies that resemble them.

After a failure, no call is repeated, no markup is shown, and the turn ends with new calls or text.
A correct reply passes unchanged, in one generation.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.tools import ToolCall
from proxy.facts import Asked, Dropped, RejectedReply
from proxy.guardrails.reasoning import EnoughReadError
from proxy.inference.driver import end_early
from tests.fakes.playbook import Playbook, make_request, make_tool, shown_text
from tests.fakes.small_models import (
    FAILURES,
    HALL,
    INBOX,
    INBOX_REQUEST,
    INBOX_RESULT,
    MAIL,
    MAIL_REQUEST,
    MAIL_RUN,
    PARIS,
    PARIS_ANSWER,
    PARIS_REQUEST,
    PARIS_RESULT,
    PARIS_RUN,
    STRING,
    TAGGED_RESULT,
    TOOLS,
    Conversation,
    ExecutedCall,
    write_call,
)

OFFERED = tuple(
    make_tool(str(tool["name"]), parameters)
    for tool in TOOLS
    if isinstance(parameters := tool["parameters"], dict)
)
MOST_GENERATIONS = 3
MOST_COPIES = 3
MARKUP = ('{"name"', '{"ok"', "<tool_response>", "gave no usable reply")


def make_history(conversation: Conversation) -> list[Message]:
    messages = [user_message(conversation.request)]
    for number, run in enumerate(conversation.executed):
        call = ToolCall(f"call_{number}", run.name, json.dump_text(run.arguments))
        messages.append(assistant_message("", (call,)))
        messages.append(tool_result(call.id, run.result))
    return [*messages, *map(user_message, conversation.remarks)]


@dataclass
class Run:
    """A turn that receives scripted replies in pieces of `size` characters."""

    book: Playbook
    size: int
    sent: list[list[bytes]] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    def play(self, replies: tuple[str, ...]) -> "Run":
        for reply in replies:
            upstream_request = self.book.turn.next_request()
            assert upstream_request is not None, "the turn ended before the last reply"
            self.sent.append([message.source for message in upstream_request.messages])
            self.read.append("")
            self._play(reply)
        assert self.book.turn.next_request() is None, "the turn goes on after the last reply"
        return self

    def _play(self, reply: str) -> None:
        turn, shown = self.book.turn, self.book.shown
        try:
            for start in range(0, len(reply), self.size):
                piece = reply[start : start + self.size]
                self.read[-1] += piece
                shown += turn.receive(TextDelta(piece))
            shown += turn.receive(ReplyFinished("stop"))
        except EnoughReadError:
            end_early(turn, shown)

    @property
    def calls(self) -> tuple[tuple[str, JsonObject], ...]:
        return tuple(read_calls(self.book.shown))

    @property
    def text(self) -> str:
        return shown_text(self.book)

    @property
    def attempts(self) -> tuple[str, ...]:
        return tuple(fact.kind for fact in self.book.turn.facts if isinstance(fact, Asked))


def read_calls(shown: list[ReplyEvent]) -> Iterator[tuple[str, JsonObject]]:
    """Yield the calls that a client has received, whole or in pieces."""
    names: list[str] = []
    arguments: list[str] = []
    for event in shown:
        match event:
            case ToolCallStarted(_, _, name):
                names.append(name)
                arguments.append("")
            case ToolCallArgumentsDelta(_, text):
                arguments[-1] += text
            case ToolCalled(_, call):
                names.append(call.name)
                arguments.append(call.arguments)
            case _:
                pass
    for name, text in zip(names, arguments, strict=True):
        value = json.parse(text)
        assert isinstance(value, dict)
        yield name, value


def run(conversation: Conversation, *, stream: bool, size: int = 7) -> Run:
    request = make_request(*make_history(conversation), tools=OFFERED, stream=stream)
    return Run(Playbook.of(request), size).play(conversation.replies)


FAILURE_ROWS = [pytest.param(row, id=name) for name, row in FAILURES.items()]
LEAST_PIECE, WHOLE = 1, 100_000


@pytest.mark.parametrize("conversation", FAILURE_ROWS)
def test_a_failure_of_a_small_model_ends_with_new_calls_or_text(
    conversation: Conversation, stream: bool
) -> None:
    played = run(conversation, stream=stream)
    assert played.calls == conversation.calls
    assert played.text == conversation.text
    assert played.attempts == conversation.attempts
    reason = "tool_calls" if conversation.calls else "stop"
    assert played.book.shown[-1] == ReplyFinished(reason)
    assert len(played.attempts) <= MOST_GENERATIONS
    assert not any(mark in played.text for mark in MARKUP)
    for run_before in conversation.executed:
        assert (run_before.name, run_before.arguments) not in played.calls
    for before, after in pairwise(played.sent):
        assert after[: len(before)] == before
        assert len(after) > len(before)
    for text in played.read:
        assert text.count('"arguments"') <= MOST_COPIES * max(1, len(conversation.calls))


@pytest.mark.parametrize("conversation", FAILURE_ROWS)
@pytest.mark.parametrize("size", [LEAST_PIECE, WHOLE])
def test_the_calls_and_text_of_a_failure_do_not_depend_on_the_chunking(
    conversation: Conversation, size: int
) -> None:
    played = run(conversation, stream=True, size=size)
    assert (played.calls, played.text) == (conversation.calls, conversation.text)
    assert not any(mark in played.text for mark in MARKUP)
    if size == WHOLE:
        assert played.attempts == conversation.attempts
    else:
        assert all(text.count('"arguments"') <= MOST_COPIES * 2 for text in played.read)


TESTS: JsonObject = {"folder": "tests"}
TESTS_RUN = ExecutedCall("run_tests", TESTS, "1 failed, 3 passed")
EDIT: JsonObject = {"path": "a.py", "text": "x = 1"}
EDIT_RUN = ExecutedCall("edit_file", EDIT, '{"ok": true}')
BUILD: JsonObject = {"build": 7}
BUILD_RUN = ExecutedCall("get_build_status", BUILD, '{"status": "still running"}')
PARIS_CALL = write_call("get_weather", PARIS)
FORMAT = (
    "A tool call is one JSON object with a name and its arguments:\n\n"
    '```json\n{"name": "get_weather", "arguments": {"city": "Berlin"}}\n```\n\n'
    "The server then runs the tool."
)
QUOTED = (
    "The mark `<tool_response>` encloses the result of a tool:\n\n"
    "<tool_response>\nsome result\n</tool_response>\n\nIt ends with `</tool_response>`."
)
CODE = 'Use this configuration:\n\n```json\n{"compilerOptions": {"strict": true}}\n```\n\nSave it.'

CORRECT_REPETITIONS: dict[str, Conversation] = {
    "still running": Conversation(
        "Wait for build 7.",
        (BUILD_RUN,),
        (write_call("get_build_status", BUILD),),
        calls=(("get_build_status", BUILD),),
    ),
    "tests after an edit": Conversation(
        "Make the tests in the folder tests pass: a.py must say x = 1.",
        (TESTS_RUN, EDIT_RUN),
        (write_call("run_tests", TESTS),),
        calls=(("run_tests", TESTS),),
    ),
    "a listing after a failure": Conversation(
        "List the folder inbox and move the bill in it to the folder bills.",
        (
            ExecutedCall("list_files", INBOX, INBOX_RESULT),
            ExecutedCall(
                "move_file",
                {"path": "bills/bill-may.pdf", "folder": "bills"},
                '{"error": "no file bills/bill-may.pdf"}',
            ),
        ),
        (write_call("list_files", INBOX),),
        calls=(("list_files", INBOX),),
    ),
    "after a failure": Conversation(
        MAIL_REQUEST,
        (ExecutedCall("send_mail", MAIL, '{"error": "connection refused"}'),),
        (write_call("send_mail", MAIL),),
        calls=(("send_mail", MAIL),),
    ),
    "after a result with success false": Conversation(
        MAIL_REQUEST,
        (ExecutedCall("send_mail", MAIL, '{"success": false, "message": "busy"}'),),
        (write_call("send_mail", MAIL),),
        calls=(("send_mail", MAIL),),
    ),
    "the user wants it twice": Conversation(
        f"{MAIL_REQUEST} Send it twice.",
        (MAIL_RUN,),
        (write_call("send_mail", MAIL),),
        calls=(("send_mail", MAIL),),
    ),
    "the user wants it twice, in Spanish": Conversation(
        "Enciende dos veces la luz: hall.",
        (ExecutedCall("set_light", HALL, '{"ok": true}'),),
        (write_call("set_light", HALL),),
        calls=(("set_light", HALL),),
    ),
    "a status that changes": Conversation(
        "Is build 7 through?",
        (
            ExecutedCall("get_build_status", BUILD, '{"phase": 1}'),
            ExecutedCall("get_build_status", BUILD, '{"phase": 2}'),
        ),
        (write_call("get_build_status", BUILD),),
        calls=(("get_build_status", BUILD),),
    ),
    "the user waits": Conversation(
        "Wait for build 7.",
        (ExecutedCall("get_build_status", BUILD, '{"phase": 1}'),),
        (write_call("get_build_status", BUILD),),
        calls=(("get_build_status", BUILD),),
    ),
    "names that differ in case": Conversation(
        "Write x = 1 into a.py and into A.py.",
        (EDIT_RUN,),
        (write_call("edit_file", {**EDIT, "path": "A.py"}),),
        calls=(("edit_file", {**EDIT, "path": "A.py"}),),
    ),
    "after the user spoke again": Conversation(
        MAIL_REQUEST,
        (MAIL_RUN,),
        (write_call("send_mail", MAIL),),
        calls=(("send_mail", MAIL),),
        remarks=("She did not get it. Please send it again.",),
    ),
    "other values": Conversation(
        "What is the weather in Paris and in Rome?",
        (PARIS_RUN,),
        (write_call("get_weather", {"city": "Rome"}),),
        calls=(("get_weather", {"city": "Rome"}),),
    ),
}
ANSWERS: dict[str, Conversation] = {
    "prose": Conversation(PARIS_REQUEST, (PARIS_RUN,), (PARIS_ANSWER,), PARIS_ANSWER),
    "prose that quotes a value": Conversation(
        INBOX_REQUEST,
        (ExecutedCall("list_files", INBOX, INBOX_RESULT),),
        ("The files are:\n\n- `inbox/bill-may.pdf`\n- `inbox/photo.jpg`",),
        "The files are:\n\n- `inbox/bill-may.pdf`\n- `inbox/photo.jpg`",
    ),
    "the user wants JSON": Conversation(
        f"{PARIS_REQUEST} Answer in JSON.", (PARIS_RUN,), (PARIS_RESULT,), PARIS_RESULT
    ),
    "the user wants JSON in a fence": Conversation(
        f"{PARIS_REQUEST} Answer in JSON.",
        (PARIS_RUN,),
        (f"```json\n{PARIS_RESULT}\n```",),
        f"```json\n{PARIS_RESULT}\n```",
    ),
    "the user wants JSON, in Chinese": Conversation(
        "巴黎天气如何, 请用JSON回答。", (PARIS_RUN,), (PARIS_RESULT,), PARIS_RESULT
    ),
    "a label before words": Conversation(
        PARIS_REQUEST, (PARIS_RUN,), (f"Result: {PARIS_ANSWER}",), f"Result: {PARIS_ANSWER}"
    ),
    "words that begin like a label": Conversation(
        PARIS_REQUEST, (PARIS_RUN,), ("The tool says: rain.",), "The tool says: rain."
    ),
    "code within a line": Conversation(
        PARIS_REQUEST, (PARIS_RUN,), ("Use ```umbrella``` today.",), "Use ```umbrella``` today."
    ),
    "an explanation of a format": Conversation(
        "Explain how I call get_weather in JSON.", (), (FORMAT,), FORMAT
    ),
    "code that is no call": Conversation("How do I make TypeScript strict?", (), (CODE,), CODE),
    "code that is no call, after a tool": Conversation(PARIS_REQUEST, (PARIS_RUN,), (CODE,), CODE),
    "markup that the user asked about": Conversation(
        "What does <tool_response> mean?", (), (QUOTED,), QUOTED
    ),
    "markup that the user asked about, after a tool": Conversation(
        "What does <tool_response> mean? Look it up.",
        (ExecutedCall("list_files", INBOX, INBOX_RESULT),),
        (QUOTED,),
        QUOTED,
    ),
}


@pytest.mark.parametrize(
    "conversation",
    [pytest.param(row, id=name) for name, row in (CORRECT_REPETITIONS | ANSWERS).items()],
)
def test_a_correct_reply_that_resembles_a_failure_is_returned_without_a_retry(
    conversation: Conversation, stream: bool
) -> None:
    played = run(conversation, stream=stream)
    assert played.text == conversation.text
    assert played.calls == conversation.calls
    assert played.attempts == ("as_asked",)
    facts = played.book.turn.facts
    assert not any(isinstance(fact, RejectedReply | Dropped) for fact in facts)


@pytest.mark.parametrize("executed", [PARIS_RUN, MAIL_RUN])
def test_structured_call_may_repeat_an_executed_call(executed: ExecutedCall, stream: bool) -> None:
    history = make_history(Conversation("Watch this for me.", (executed,), ()))
    book = Playbook.of(make_request(*history, tools=OFFERED, stream=stream)).ask()
    book.receive(ToolCallStarted(0, "backend_id", executed.name))
    book.receive(ToolCallArgumentsDelta(0, json.dump_text(executed.arguments)))
    book.receive(ReplyFinished("tool_calls"))
    assert [*read_calls(book.shown)] == [(executed.name, executed.arguments)]
    assert book.shown[-1] == ReplyFinished("tool_calls")
    assert book.turn.next_request() is None


def test_text_of_a_recognized_call_is_not_a_second_call(stream: bool) -> None:
    request = make_request(user_message(MAIL_REQUEST), tools=OFFERED, stream=stream)
    book = Playbook.of(request).ask()
    book.receive(TextDelta(write_call("send_mail", MAIL)))
    book.receive(ToolCallStarted(0, "backend_id", "send_mail"))
    book.receive(ToolCallArgumentsDelta(0, json.dump_text(MAIL)))
    book.receive(ReplyFinished("tool_calls"))
    assert [*read_calls(book.shown)] == [("send_mail", MAIL)]
    assert shown_text(book) == ""


def test_calls_that_differ_only_in_case_are_one_call(stream: bool) -> None:
    other = write_call("send_mail", {**MAIL, "to": "Ann@example.com"})
    reply = f"{write_call('send_mail', MAIL)}\n{other}"
    played = run(Conversation(MAIL_REQUEST, (), (reply,)), stream=stream)
    assert played.calls == (("send_mail", MAIL),)


def test_the_text_lists_the_tool_result_if_the_model_only_repeats_its_call(stream: bool) -> None:
    again = write_call("send_mail", MAIL)
    played = run(Conversation(MAIL_REQUEST, (MAIL_RUN,), (again, again, again)), stream=stream)
    assert (played.calls, played.text) == ((), "send_mail returned ok: true.")


def test_a_json_answer_in_the_response_format_is_not_mistaken_for_a_copied_result(
    stream: bool,
) -> None:
    schema: JsonObject = {
        "type": "object",
        "properties": {"city": STRING, "weather": STRING},
        "required": ["city", "weather"],
    }
    history = make_history(Conversation(PARIS_REQUEST, (PARIS_RUN,), ()))
    request = make_request(*history, tools=OFFERED, answer_schema=schema, stream=stream)
    played = Run(Playbook.of(request), 7).play((PARIS_RESULT,))
    assert played.text == PARIS_RESULT
    assert played.attempts == ("as_asked",)


def test_json_is_the_answer_if_the_instructions_demand_json(stream: bool) -> None:
    instructions = replace(user_message("Always respond in JSON."), role="system")
    history = make_history(Conversation(PARIS_REQUEST, (PARIS_RUN,), ()))
    request = make_request(instructions, *history, tools=OFFERED, stream=stream)
    played = Run(Playbook.of(request), 7).play((PARIS_RESULT,))
    assert played.text == PARIS_RESULT
    assert played.attempts == ("as_asked",)


def test_text_in_result_markup_is_the_answer(stream: bool) -> None:
    tagged = f"<tool_response>\n{PARIS_ANSWER}\n</tool_response>"
    played = run(Conversation(PARIS_REQUEST, (PARIS_RUN,), (tagged,)), stream=stream)
    assert played.text.strip() == PARIS_ANSWER
    assert played.attempts == ("as_asked",)


def test_no_retry_message_to_the_model_contains_tool_markup() -> None:
    conversation = Conversation(
        PARIS_REQUEST, (PARIS_RUN,), (TAGGED_RESULT, PARIS_CALL, PARIS_ANSWER), PARIS_ANSWER
    )
    played = run(conversation, stream=False)
    assert played.text == PARIS_ANSWER
    assert not any(b"<tool_response>" in message for message in played.sent[-1])
