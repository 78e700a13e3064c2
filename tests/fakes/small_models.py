"""Conversations in which a small model fails after its tools have run.

The texts are those of Qwen2.5-Coder-Instruct 0.5B and 1.5B (Q4_K_M) on llama-server, or differ from
them only in the format of the call. The name of a conversation begins with the kind of failure:

    R1  repeats an executed call          R6  writes the next call as if it were a result
    R2  echoes a result                   R7  explains executed calls as code
    R3  invents the result of a call      R8  makes a needless call
    R4  repeats a line endlessly          R9  copies a nudge, or writes an unreadable reply
    R5  writes the next call next to an executed call, or only explains the next call
"""

from dataclasses import dataclass

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

STRING: JsonObject = {"type": "string"}
MANY = 200  # copies of a call in one reply
DAYS: list[JsonValue] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


@dataclass(frozen=True)
class ExecutedCall:
    """A call that the client has run, and its result."""

    name: str
    arguments: JsonObject
    result: str


@dataclass(frozen=True)
class Conversation:
    """A history, the model's replies in order, and the answer that the client must receive.

    `attempts` are the kinds of the upstream requests. The user's `remarks` follow the results.
    """

    request: str
    executed: tuple[ExecutedCall, ...]
    replies: tuple[str, ...]
    text: str = ""
    calls: tuple[tuple[str, JsonObject], ...] = ()
    attempts: tuple[str, ...] = ("as_asked",)
    remarks: tuple[str, ...] = ()


def describe_tool(name: str, properties: JsonObject, *required: str) -> JsonObject:
    """Return the name, description and parameters of a tool."""
    parameters: JsonObject = {"type": "object", "properties": properties}
    return {
        "name": name,
        "description": name.replace("_", " "),
        "parameters": {**parameters, "required": [*required] or [*properties]},
    }


TOOLS: tuple[JsonObject, ...] = (
    describe_tool("get_weather", {"city": STRING}),
    describe_tool(
        "add_event",
        {
            "title": STRING,
            "day": {"type": "string", "enum": DAYS},
            "hour": {"type": "integer", "minimum": 0, "maximum": 23},
        },
    ),
    describe_tool("send_mail", {"to": STRING, "subject": STRING, "body": STRING}),
    describe_tool("list_files", {"folder": STRING}),
    describe_tool("move_file", {"path": STRING, "folder": STRING}),
    describe_tool(
        "set_light",
        {"room": STRING, "on": {"type": "boolean"}, "brightness": {"type": "integer"}},
        "room",
        "on",
    ),
    describe_tool("edit_file", {"path": STRING, "text": STRING}),
    describe_tool("run_tests", {"folder": STRING}),
    describe_tool("get_build_status", {"build": {"type": "integer"}}),
    describe_tool("search_notes", {"query": STRING}),
    describe_tool("delete_note", {"note_id": STRING}),
)


def write_call(name: str, arguments: JsonObject) -> str:
    """Return a call as the models write it: one JSON object."""
    return json.dump_text({"name": name, "arguments": arguments})


def answer_with(message: str) -> str:
    """Return the call of the answer tool, the only one that the last attempt allows."""
    return write_call("respond", {"message": message})


def _write_python(name: str, arguments: JsonObject) -> str:
    values = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"[{name}({values})]"


def _write_parameters(name: str, arguments: JsonObject) -> str:
    return json.dump_text({"tool": name, "parameters": arguments})


def write_in_each_form(name: str, arguments: JsonObject) -> dict[str, str]:
    """Return one call in each textual form that small models use."""
    bare = write_call(name, arguments)
    return {
        "bare": bare,
        "fence": f"```json\n{bare}\n```",
        "tags": f"<tool_call>\n{bare}\n</tool_call>",
        "lines": f"{bare}\n{bare}",
        "JSON list": f"[{bare}]",
        "Python list": _write_python(name, arguments),
        "other keys": _write_parameters(name, arguments),
        "arguments as a text": json.dump_text(
            {"name": name, "arguments": json.dump_text(arguments)}
        ),
        "other name": write_call("".join(part.title() for part in name.split("_")), arguments),
    }


PARIS: JsonObject = {"city": "Paris"}
PARIS_RESULT = '{"city": "Paris", "weather": "rain, 12 degrees"}'
PARIS_RUN = ExecutedCall("get_weather", PARIS, PARIS_RESULT)
PARIS_REQUEST = "What is the weather in Paris right now?"
PARIS_ANSWER = "It is raining in Paris at 12 degrees."
MAIL: JsonObject = {
    "to": "ann@example.com",
    "subject": "Report",
    "body": "The report is ready.",
}
MAIL_RUN = ExecutedCall("send_mail", MAIL, '{"ok": true}')
MAIL_REQUEST = "Mail ann@example.com with the subject Report and the text 'The report is ready.'"
MAIL_ANSWER = "The mail to Ann was sent."
STANDUP: JsonObject = {"title": "Standup", "day": "mon", "hour": 10}
RETRO: JsonObject = {"title": "Retro", "day": "thu", "hour": 15}
STANDUP_RUN = ExecutedCall("add_event", STANDUP, '{"ok": true, "event": "Standup"}')
RETRO_RUN = ExecutedCall("add_event", RETRO, '{"ok": true, "event": "Retro"}')
BOOKING_REQUEST = "Book 'Standup' for Monday 10 and 'Retro' for Thursday 15."
BOOKING_ANSWER = "Standup and Retro are in your calendar."
ROME: JsonObject = {"city": "Rome"}
ROME_RUN = ExecutedCall("get_weather", ROME, '{"city": "Rome", "weather": "sun, 24 degrees"}')
ROME_REQUEST = (
    "Check the weather in Rome. If it is sunny there, add an event 'Picnic' on Sunday at 13."
)
PICNIC: JsonObject = {"title": "Picnic", "day": "sun", "hour": 13}
OSLO: JsonObject = {"city": "Oslo"}
OSLO_RUN = ExecutedCall("get_weather", OSLO, '{"city": "Oslo", "weather": "snow, -3 degrees"}')
OSLO_REQUEST = "Get the weather in Oslo, then mail it to carl@example.com with the subject Weather."
OSLO_MAIL: JsonObject = {
    "to": "carl@example.com",
    "subject": "Weather",
    "body": "The weather in Oslo is snow, -3 degrees.",
}
INBOX: JsonObject = {"folder": "inbox"}
INBOX_RESULT = '{"files": ["inbox/bill-may.pdf", "inbox/photo.jpg"]}'
INBOX_REQUEST = "Which files are in the folder inbox?"
HALL: JsonObject = {"room": "hall", "on": True}
GARAGE: JsonObject = {"room": "garage", "on": True}
LIGHTS_RUN = (
    ExecutedCall("set_light", HALL, '{"ok": true}'),
    ExecutedCall("set_light", GARAGE, '{"ok": true}'),
)
LIGHTS_REQUEST = "Switch on the lights in the hall and in the garage."
LIGHTS_ANSWER = "The lights in the hall and in the garage are on."
LIGHTS_EXPLAINED = (
    "To switch on the lights, you can use the following code:\n\n"
    f"```json\n{write_call('set_light', HALL)}\n```\n\nAnd\n\n"
    f"```json\n{write_call('set_light', GARAGE)}\n```"
)
FAREWELL = "Thank you, that was all for today!"
NEEDLESS: JsonObject = {
    "to": "example@example.com",
    "subject": "Thank you",
    "body": "Thank you, that was all for today!",
}
PLACEHOLDERS: JsonObject = {**OSLO_MAIL, "to": "your-email@example.com"}
UNREAD = "to=functions.get_weather json{city: Paris}"
TAGGED_RESULT = f"<tool_response>\n{PARIS_RESULT}\n</tool_response>"

# kinds of attempts (see proxy/guardrails/retry.py); "ending" demands an answer in words
_ENDED = ("as_asked", "ending")
_NUDGED_AND_ENDED = ("as_asked", "nudged", "ending")
_SENT_AGAIN = write_call("send_mail", MAIL)
_STANDUP_AGAIN = write_call("add_event", STANDUP)
_RETRO_CALL = write_call("add_event", RETRO)
_INBOX_CALL = write_call("list_files", INBOX)
_INBOX_ACTION = f"Action: list_files\nAction Input: {json.dump_text(INBOX)}\n"


def _mail(
    *replies: str, text: str = MAIL_ANSWER, attempts: tuple[str, ...] = _ENDED
) -> Conversation:
    return Conversation(
        MAIL_REQUEST, (MAIL_RUN,), (*replies, answer_with(MAIL_ANSWER)), text, (), attempts
    )


def _paris(*replies: str, attempts: tuple[str, ...] = _ENDED) -> Conversation:
    last = answer_with(PARIS_ANSWER)
    return Conversation(PARIS_REQUEST, (PARIS_RUN,), (*replies, last), PARIS_ANSWER, (), attempts)


def _lights(reply: str, text: str = LIGHTS_ANSWER) -> Conversation:
    replies = (reply, answer_with(LIGHTS_ANSWER))
    return Conversation(LIGHTS_REQUEST, LIGHTS_RUN, replies, text, attempts=_ENDED)


BILL_MOVED: JsonObject = {"path": "inbox/bill-may.pdf", "folder": "bills"}
NOTE_REQUEST = "Search the notes for 'Garden' and delete the note that you find."
UNKNOWN_NOTE_RUN = ExecutedCall(
    "delete_note", {"note_id": "12345"}, '{"error":"Unknown note_id \'12345\'. Use search_notes."}'
)
_DELETE_CALL = write_call("delete_note", {"note_id": "12345"})
_SEARCH_CALL = write_call("search_notes", {"query": "Garden"})
_EXPLAINED_DELETION = "To delete a note, you need to first search for the note by its title."

FAILURES: dict[str, Conversation] = {
    **{f"R1 {form}": _mail(text) for form, text in write_in_each_form("send_mail", MAIL).items()},
    "R1 with words after it": _mail(f"{_SENT_AGAIN}\nThe mail has been sent."),
    "R1 with words before it": _mail(
        f"I will send the mail now.\n{_SENT_AGAIN}",
        text=f"I will send the mail now.\n\n{MAIL_ANSWER}",
    ),
    "R1 in two fences": _mail(f"```json\n{_SENT_AGAIN}\n```\n```json\n{_SENT_AGAIN}\n```"),
    "R1, and the answer in plain words": Conversation(
        MAIL_REQUEST, (MAIL_RUN,), (_SENT_AGAIN, MAIL_ANSWER), MAIL_ANSWER, attempts=_ENDED
    ),
    "R1, and the call once more as the answer": _mail(
        _SENT_AGAIN, _SENT_AGAIN, attempts=("as_asked", "ending", "ending")
    ),
    "R1, and an echo as the answer": _mail(
        _SENT_AGAIN, '{"ok": true}', attempts=("as_asked", "ending", "ending")
    ),
    "R1, and a message like an echo": _mail(
        _SENT_AGAIN, answer_with('{"ok": true}'), attempts=("as_asked", "ending", "ending")
    ),
    "R1 a lookup": _paris(write_call("get_weather", PARIS)),
    "R1 arguments in another order": _mail(write_call("send_mail", {**{"body": ""}, **MAIL})),
    "R1 case and white space": _mail(
        write_call("send_mail", {**MAIL, "to": "Ann@Example.com", "body": "the report  is ready. "})
    ),
    "R1 an empty member": Conversation(
        LIGHTS_REQUEST,
        LIGHTS_RUN,
        (write_call("set_light", {**HALL, "brightness": None}), answer_with(LIGHTS_ANSWER)),
        LIGHTS_ANSWER,
        attempts=_ENDED,
    ),
    "R1 a part is open": Conversation(
        BOOKING_REQUEST,
        (STANDUP_RUN,),
        (_STANDUP_AGAIN, _RETRO_CALL),
        calls=(("add_event", RETRO),),
        attempts=("as_asked", "nudged"),
    ),
    "R1 a part is open, and the call comes again": Conversation(
        BOOKING_REQUEST,
        (STANDUP_RUN,),
        (_STANDUP_AGAIN, _STANDUP_AGAIN, answer_with(BOOKING_ANSWER)),
        BOOKING_ANSWER,
        attempts=_NUDGED_AND_ENDED,
    ),
    "R1 to the end": Conversation(
        BOOKING_REQUEST,
        (STANDUP_RUN, RETRO_RUN),
        (_RETRO_CALL, answer_with(BOOKING_ANSWER)),
        BOOKING_ANSWER,
        attempts=_ENDED,
    ),
    "R2 markup": _paris(TAGGED_RESULT),
    "R2 markup without an end": _paris(f"<tool_response>\n{PARIS_RESULT}\n"),
    "R2 bare": _paris(PARIS_RESULT),
    "R2 fence": _paris(f"```json\n{PARIS_RESULT}\n```"),
    **{
        f"R2 {name}": _paris(text)
        for name, text in {
            "label": f"Observation: {PARIS_RESULT}",
            "label and fence": f"Tool result:\n```json\n{PARIS_RESULT}\n```",
            "label in German": f"Ergebnis: {PARIS_RESULT}",
            "wrapped": f'{{"name": "get_weather", "response": {PARIS_RESULT}}}',
            "as a text": json.dump_text({"role": "tool", "content": PARIS_RESULT}),
            "in a list": f"[{PARIS_RESULT}]",
            "broken off": PARIS_RESULT[:-12],
        }.items()
    },
    "R2 ok": _mail('{"ok": true}'),
    "R2 a made-up result": _paris('{"city": "Paris", "weather": "sun, 30 degrees"}'),
    "R2 after words": Conversation(
        PARIS_REQUEST, (PARIS_RUN,), (f"{PARIS_ANSWER}\n{TAGGED_RESULT}",), PARIS_ANSWER
    ),
    "R3 a new call": Conversation(
        INBOX_REQUEST,
        (),
        (f"{_INBOX_CALL}\n{INBOX_RESULT}",),
        calls=(("list_files", INBOX),),
    ),
    "R3 a new call after another": Conversation(
        BOOKING_REQUEST,
        (STANDUP_RUN,),
        (f'{_RETRO_CALL}\n{{"ok": true}}',),
        calls=(("add_event", RETRO),),
    ),
    "R3 a new call in a fence": Conversation(
        INBOX_REQUEST,
        (),
        (f"```json\n{_INBOX_CALL}\n```\n```json\n{INBOX_RESULT}\n```",),
        calls=(("list_files", INBOX),),
    ),
    "R3 two new calls, each with a result": Conversation(
        BOOKING_REQUEST,
        (),
        (
            f'{_STANDUP_AGAIN}\n{{"ok": true, "event": "Standup"}}\n'
            f'{_RETRO_CALL}\n{{"ok": true, "event": "Retro"}}',
        ),
        calls=(("add_event", STANDUP),),
    ),
    "R3 a new call and a tagged result": Conversation(
        INBOX_REQUEST,
        (),
        (f"{_INBOX_CALL}\n<tool_response>\n{INBOX_RESULT}\n</tool_response>",),
        calls=(("list_files", INBOX),),
    ),
    **{
        f"R3 a new call {name}": Conversation(
            INBOX_REQUEST, (), (text,), calls=(("list_files", INBOX),)
        )
        for name, text in {
            "and a label": f"{_INBOX_CALL}\nObservation: {INBOX_RESULT}",
            "and a fence": f"{_INBOX_CALL}\nOutput:\n```json\n{INBOX_RESULT}\n```\nThat is all.",
            "in tags": f"<tool_call>\n{_INBOX_CALL}\n</tool_call>\n{INBOX_RESULT}\nThat is all.",
            "without an end": f"<|python_tag|>{_INBOX_CALL}\n{INBOX_RESULT}\nThat is all.",
            "and the next step": f"{_INBOX_ACTION}Observation: two files\nThought: I am done.",
        }.items()
    },
    "R3 a repeated call in tags": _mail(
        f'<tool_call>\n{_SENT_AGAIN}\n</tool_call>\n{{"ok": true}}'
    ),
    "R3 a repeated call": _mail(f'{_SENT_AGAIN}\n{{"ok": true}}'),
    "R4 a new call": Conversation(
        INBOX_REQUEST,
        (),
        ("\n".join([_INBOX_CALL] * 47),),
        calls=(("list_files", INBOX),),
    ),
    "R4 a new call in tags": Conversation(
        INBOX_REQUEST,
        (),
        ("\n".join([f"<tool_call>\n{_INBOX_CALL}\n</tool_call>"] * 47),),
        calls=(("list_files", INBOX),),
    ),
    "R4 a new call in fences": Conversation(
        INBOX_REQUEST,
        (),
        ("\n".join([f"```json\n{_INBOX_CALL}\n```"] * 47),),
        calls=(("list_files", INBOX),),
    ),
    "R4 a new call in one fence": Conversation(
        INBOX_REQUEST,
        (),
        ("```json\n" + "\n".join([_INBOX_CALL] * 47),),
        calls=(("list_files", INBOX),),
    ),
    "R4 a new call in a list": Conversation(
        INBOX_REQUEST,
        (),
        ("[" + ", ".join([_INBOX_CALL] * 47),),
        calls=(("list_files", INBOX),),
    ),
    "R4 a new call on one line": Conversation(
        INBOX_REQUEST,
        (),
        ("".join([_INBOX_CALL] * 47),),
        calls=(("list_files", INBOX),),
    ),
    **{
        f"R4 a new call in {name}": Conversation(
            INBOX_REQUEST, (), (text * MANY,), calls=(("list_files", INBOX),)
        )
        for name, text in {
            "Python": "[list_files(folder='inbox')]\n",
            "Python without a list": "list_files(folder='inbox')\n",
            "ReAct": _INBOX_ACTION,
            "a name and an object": f"list_files\n{json.dump_text(INBOX)}\n",
        }.items()
    },
    "R4 two calls in turn": Conversation(
        BOOKING_REQUEST,
        (),
        ("\n".join([_STANDUP_AGAIN, _RETRO_CALL] * 47),),
        calls=(("add_event", STANDUP), ("add_event", RETRO)),
    ),
    "R4 a repeated result": _mail("\n".join(['{"ok": true}'] * 100)),
    "R4 a call and its result": _mail("\n".join([_SENT_AGAIN, '{"ok": true}'] * 100)),
    "R4 a repeated call": Conversation(
        MAIL_REQUEST,
        (MAIL_RUN,),
        ("\n".join([_SENT_AGAIN] * 129), answer_with(MAIL_ANSWER)),
        MAIL_ANSWER,
        attempts=_ENDED,
    ),
    "R4 a repeated call in a retry": Conversation(
        BOOKING_REQUEST,
        (STANDUP_RUN,),
        (_STANDUP_AGAIN, "\n".join([_STANDUP_AGAIN] * 47), answer_with(BOOKING_ANSWER)),
        BOOKING_ANSWER,
        attempts=_NUDGED_AND_ENDED,
    ),
    "R4 an invalid call in a retry": Conversation(
        INBOX_REQUEST,
        (),
        (
            '{"name": "list_files", "arguments": {}}',
            "\n".join(['{"name": "list_files", "arguments": {}}'] * 47),
            _INBOX_CALL,
        ),
        calls=(("list_files", INBOX),),
        attempts=("as_asked", "nudged", "constrained"),
    ),
    "R5 lines": Conversation(
        ROME_REQUEST,
        (ROME_RUN,),
        (f"{write_call('get_weather', ROME)}\n{write_call('add_event', PICNIC)}",),
        calls=(("add_event", PICNIC),),
    ),
    "R5 fences": Conversation(
        ROME_REQUEST,
        (ROME_RUN,),
        (
            f"```json\n{write_call('get_weather', ROME)}\n```\n"
            f"```json\n{write_call('add_event', PICNIC)}\n```",
        ),
        calls=(("add_event", PICNIC),),
    ),
    "R5 tags": Conversation(
        ROME_REQUEST,
        (ROME_RUN,),
        (
            f"<tool_call>\n{write_call('get_weather', ROME)}\n</tool_call>\n"
            f"<tool_call>\n{write_call('add_event', PICNIC)}\n</tool_call>",
        ),
        calls=(("add_event", PICNIC),),
    ),
    "R5 a placeholder": Conversation(
        OSLO_REQUEST,
        (OSLO_RUN,),
        (
            f"{write_call('get_weather', OSLO)}\n{write_call('send_mail', PLACEHOLDERS)}",
            write_call("send_mail", OSLO_MAIL),
        ),
        calls=(("send_mail", OSLO_MAIL),),
        attempts=("as_asked", "nudged"),
    ),
    "R6": Conversation(
        ROME_REQUEST,
        (ROME_RUN,),
        (
            f"<tool_response>\n{write_call('add_event', PICNIC)}\n</tool_response>",
            write_call("add_event", PICNIC),
        ),
        calls=(("add_event", PICNIC),),
        attempts=("as_asked", "nudged"),
    ),
    "R6 without an end": Conversation(
        ROME_REQUEST,
        (ROME_RUN,),
        (
            f"<tool_response>\n{write_call('add_event', PICNIC)}",
            write_call("add_event", PICNIC),
        ),
        calls=(("add_event", PICNIC),),
        attempts=("as_asked", "nudged"),
    ),
    "R6 in Python": Conversation(
        ROME_REQUEST,
        (ROME_RUN,),
        (
            "<tool_response>\nadd_event(title='Picnic', day='sun', hour=13)\n</tool_response>",
            write_call("add_event", PICNIC),
        ),
        calls=(("add_event", PICNIC),),
        attempts=("as_asked", "nudged"),
    ),
    "R6 a repeated call": _mail(f"<tool_response>\n{_SENT_AGAIN}\n</tool_response>"),
    # the words before the code were already sent
    "R7": _lights(LIGHTS_EXPLAINED, text=f"{LIGHTS_EXPLAINED[:56]}\n\n{LIGHTS_ANSWER}"),
    "R7 on one line": _lights(
        "You can use the following code: "
        f"```json {write_call('set_light', HALL)}``` And "
        f"```json {write_call('set_light', GARAGE)}```",
        f"You can use the following code:\n\n{LIGHTS_ANSWER}",
    ),
    "R7 without a fence, between words": _lights(
        f"You can use the following code:\n\n{write_call('set_light', HALL)}\n\nThis does it.",
        f"You can use the following code:\n\n{LIGHTS_ANSWER}",
    ),
    "R7 with words at the end": _lights(
        f"{LIGHTS_EXPLAINED}\n\nThat is it.", f"{LIGHTS_EXPLAINED[:56]}\n\n{LIGHTS_ANSWER}"
    ),
    "R7 without a fence": _lights(
        f"I used this call:\n{write_call('set_light', HALL)}\nand this one:\n"
        f"{write_call('set_light', GARAGE)}\n",
        f"I used this call:\n\n{LIGHTS_ANSWER}",
    ),
    "R8 after all is done": Conversation(
        BOOKING_REQUEST,
        (STANDUP_RUN, RETRO_RUN),
        (
            write_call("add_event", {"title": "Meeting", "day": "mon", "hour": 9}),
            answer_with(BOOKING_ANSWER),
        ),
        BOOKING_ANSWER,
        attempts=_ENDED,
    ),
    "R8 after a repetition": Conversation(
        BOOKING_REQUEST,
        (STANDUP_RUN,),
        (
            _STANDUP_AGAIN,
            write_call("send_mail", {**NEEDLESS, "to": "user@example.com"}),
            answer_with(BOOKING_ANSWER),
        ),
        BOOKING_ANSWER,
        attempts=_NUDGED_AND_ENDED,
    ),
    **{
        f"R8 {value}": Conversation(
            FAREWELL,
            (),
            (write_call("send_mail", {**NEEDLESS, "to": value}), "You are welcome!"),
            "You are welcome!",
            attempts=("as_asked", "nudged"),
        )
        for value in ("${recipient}", "{{email}}", "id-12345", "/path/to/file")
    },
    "R8 words": Conversation(
        FAREWELL,
        (),
        (write_call("send_mail", NEEDLESS), "You are welcome!"),
        "You are welcome!",
        attempts=("as_asked", "nudged"),
    ),
    "R8 insisted on": Conversation(
        FAREWELL,
        (),
        (write_call("send_mail", NEEDLESS), write_call("send_mail", NEEDLESS)),
        calls=(("send_mail", NEEDLESS),),
        attempts=("as_asked", "nudged"),
    ),
    "R5 the next call explained": Conversation(
        BOOKING_REQUEST,
        (STANDUP_RUN,),
        (
            "To book 'Retro', you can use `add_event`. Here's how you can do it:\n\n"
            f"```json\n{_RETRO_CALL}\n```\n\n"
            "This will add it to your calendar.",
            _RETRO_CALL,
        ),
        "To book 'Retro', you can use `add_event`. Here's how you can do it:",
        (("add_event", RETRO),),
        ("as_asked", "nudged"),
    ),
    "R5 the next step explained in words": Conversation(
        BOOKING_REQUEST,
        (STANDUP_RUN,),
        ("To book 'Retro', you need to use the `add_event` function.", _RETRO_CALL),
        "To book 'Retro', you need to use the `add_event` function.",
        (("add_event", RETRO),),
        ("as_asked", "nudged"),
    ),
    "R5 a call explained when all is done": Conversation(
        BOOKING_REQUEST,
        (STANDUP_RUN, RETRO_RUN),
        (
            "To move it, you can use `add_event`. Here's how you can do it:\n\n```json\n"
            f"{write_call('add_event', {**RETRO, 'hour': 16})}\n```\n\nThis will move it.",
            answer_with(BOOKING_ANSWER),
        ),
        f"To move it, you can use `add_event`. Here's how you can do it:\n\n{BOOKING_ANSWER}",
        attempts=_ENDED,
    ),
    "R9 a copy of the nudge": Conversation(
        BOOKING_REQUEST,
        (STANDUP_RUN,),
        (
            _STANDUP_AGAIN,
            "Done so far: add_event -> ok. The next step is about Retro.",
            answer_with(BOOKING_ANSWER),
        ),
        BOOKING_ANSWER,
        attempts=_NUDGED_AND_ENDED,
    ),
    **{
        f"R9 a call of no tool, {text}": Conversation(
            FAREWELL, (), (text, "You are welcome!"), "You are welcome!", (), ("as_asked", "nudged")
        )
        for text in (
            '{"name": "exit", "arguments": {}}',
            '{{"name": "exit", "arguments": null}}',
            '```json\n{"name": "exit", "arguments": {}}\n```',
            '[{"name": "goodbye", "parameters": {"to": "all"}}]',
            f'[{_RETRO_CALL}, {{"name": "goodbye", "arguments": {{}}}}]',
            f'```json\n[{{"name": "goodbye", "arguments": {{}}}}, {_RETRO_CALL}]\n```',
        )
    },
    "R9 an unknown syntax": _paris(UNREAD, UNREAD, attempts=_NUDGED_AND_ENDED),
    **{
        f"R2 in words, with {what} open": Conversation(
            request,
            (run,),
            (run.result, write_call(name, arguments)),
            run.result,
            ((name, arguments),),
            ("as_asked", "nudged"),
        )
        for what, request, run, name, arguments in (
            (
                "a step",
                "List the folder inbox and move the bill in it to the folder bills.",
                ExecutedCall("list_files", INBOX, "inbox/bill-may.pdf"),
                "move_file",
                BILL_MOVED,
            ),
            (
                "a city",
                "What is the weather in Paris and in Rome?",
                ExecutedCall("get_weather", PARIS, "Paris: rain, 12 degrees."),
                "get_weather",
                ROME,
            ),
        )
    },
    "R5 a copy of the nudge that quotes the call": Conversation(
        BOOKING_REQUEST,
        (STANDUP_RUN,),
        (
            "To book 'Retro', you can use `add_event`:\n\n"
            f"```json\n{_RETRO_CALL}\n```\n\nThat is it.",
            "To make the call, write only: "
            + write_call("add_event", {"title": "thu", "day": "Retro", "hour": 15}),
            answer_with(BOOKING_ANSWER),
        ),
        f"To book 'Retro', you can use `add_event`:\n\n{BOOKING_ANSWER}",
        attempts=_NUDGED_AND_ENDED,
    ),
    "R3 new calls, then one of no tool": Conversation(
        BOOKING_REQUEST,
        (STANDUP_RUN,),
        (f'{_RETRO_CALL}\n{{"name": "error", "arguments": {{"message": "Unknown day."}}}}',),
        calls=((RETRO_RUN.name, RETRO_RUN.arguments),),
    ),
    "R9 silence": _paris("", attempts=_ENDED),
    "R9 silence to the end": Conversation(
        PARIS_REQUEST,
        (PARIS_RUN,),
        ("", ""),
        "get_weather returned city: Paris, weather: rain, 12 degrees.",
        attempts=_ENDED,
    ),
    **{
        f"R1 a call that failed, {way}": Conversation(
            NOTE_REQUEST,
            (UNKNOWN_NOTE_RUN,),
            (reply, _SEARCH_CALL),
            shown,
            (("search_notes", {"query": "Garden"}),),
            ("as_asked", "nudged"),
        )
        for way, reply, shown in (
            ("again", write_call("delete_note", {"note_id": "12345"}), ""),
            ("again with its error", f"{_DELETE_CALL}\n{UNKNOWN_NOTE_RUN.result}", ""),
            ("its error", f"<tool_response>\n{UNKNOWN_NOTE_RUN.result}\n</tool_response>", ""),
            ("explained", _EXPLAINED_DELETION, _EXPLAINED_DELETION),
        )
    },
    "R1 a call that failed, twice again": Conversation(
        NOTE_REQUEST,
        (UNKNOWN_NOTE_RUN,),
        (_DELETE_CALL, _DELETE_CALL, answer_with("There is no such note.")),
        "There is no such note.",
        attempts=_NUDGED_AND_ENDED,
    ),
    "R7 where nothing is left": Conversation(
        PARIS_REQUEST,
        (PARIS_RUN,),
        (
            "To put the file docs/plan.txt into the folder archive, you can use `move_file`:\n"
            f"```json\n{write_call('move_file', {'path': 'docs/plan.txt', 'folder': 'x'})}\n```",
            answer_with(PARIS_ANSWER),
        ),
        "To put the file docs/plan.txt into the folder archive, you can use `move_file`:"
        f"\n\n{PARIS_ANSWER}",
        attempts=_ENDED,
    ),
    "R9 a call that breaks off": _paris(
        '{"name": "get_weather", "arguments": {"city": ',
        '{"name": "get_weather", "arguments": {"city": ',
        attempts=_NUDGED_AND_ENDED,
    ),
    "R9 a repetition, then an unknown syntax": Conversation(
        BOOKING_REQUEST,
        (STANDUP_RUN,),
        (_STANDUP_AGAIN, "to=functions.add_event json{title: Retro}", answer_with(BOOKING_ANSWER)),
        BOOKING_ANSWER,
        attempts=_NUDGED_AND_ENDED,
    ),
}
