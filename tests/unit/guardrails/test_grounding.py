import pytest
from msgspec.structs import replace

from proxy.conversation.json import JsonObject
from proxy.guardrails.grounding import (
    Progress,
    find_invented_values,
    find_open_values,
    judge_progress,
)
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.transcript import CompletedCall
from tests.examples import mostly_deep
from tests.fakes.playbook import CLOCK, WEATHER, make_tool

EVENT = make_tool(
    "add_event",
    {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "day": {"enum": ["mon", "tue"]},
            "calendar": {"const": "private"},
            "color": {"type": "string", "default": "blue"},
            "guests": {"type": "array", "items": {"type": "string"}},
            "place": {"type": "object", "properties": {"room": {"type": "string"}}},
            "hour": {"type": "integer"},
        },
    },
)
MAIL = make_tool("send_mail", {"type": "object", "properties": {"to": {"type": "string"}}})
SEARCH = make_tool("search_mail", {"type": "object", "properties": {"to": {"type": "string"}}})


def make_offer(request: str, *executed: CompletedCall) -> OfferedTools:
    """Make the context of a turn in which these calls, or a call of `get_time`, have run."""
    executed = executed or (CompletedCall("get_time", {}, "", has_failed=False),)
    return OfferedTools(
        (WEATHER, CLOCK, EVENT, MAIL, SEARCH),
        TextPolicy.AUTO,
        (),
        user_texts=(request,),
        executed=executed,
        results=tuple(call.result for call in executed),
    )


DENTIST = CompletedCall("add_event", {"title": "Dentist"}, '{"ok": true}', has_failed=False)
DONE = make_offer('Add the event "Dentist" on monday.', DENTIST)
THANKS = make_offer("Thank you, that was all for today!")


@pytest.mark.parametrize(
    ("offer", "tool", "arguments", "invented"),
    [
        pytest.param(
            THANKS, MAIL, {"to": "example@example.com"}, ("example@example.com",), id="an address"
        ),
        pytest.param(
            make_offer("Write to Ann@Example.com."),
            MAIL,
            {"to": "ann@example.com"},
            (),
            id="a named address",
        ),
        pytest.param(
            THANKS,
            SEARCH,
            {"to": "user@example.com"},
            ("user@example.com",),
            id="a tool that reads",
        ),
        pytest.param(THANKS, SEARCH, {"to": "receipts"}, (), id="a query may be anything"),
        pytest.param(
            DONE,
            MAIL,
            {"to": "your-email@example.com"},
            ("your-email@example.com",),
            id="an address after the work",
        ),
        pytest.param(
            make_offer("Add an event called Dentist."),
            EVENT,
            {"title": "<title>"},
            ("<title>",),
            id="a placeholder",
        ),
        *(
            pytest.param(
                make_offer("Note the deadline."),
                EVENT,
                {"title": value},
                (value,) * is_gap,
                id=value,
            )
            for value, is_gap in (
                ("The deadline is on [insert deadline date].", True),
                ("Deadline: <your date>", True),
                ("C:\\Users\\YourUsername\\deadline", True),
                ("/home/your_name/deadline", True),
                ("The deadline is on [2026-03-01].", False),
                ("Is that your deadline-friendly offer?", False),
                ("Dear [Your Name],\nthe deadline is near.", False),
            )
        ),
        pytest.param(
            make_offer("Write the note 'Call [your name]'."),
            EVENT,
            {"title": "Call [your name] back"},
            (),
            id="a placeholder that was named",
        ),
        pytest.param(THANKS, EVENT, {"title": "Meeting"}, ("Meeting",), id="no shared word"),
        pytest.param(
            make_offer("I meet Bob at noon, put it down."),
            EVENT,
            {"title": "Meeting with Bob"},
            (),
            id="an inflected word",
        ),
        pytest.param(THANKS, EVENT, {"day": "mon"}, (), id="an option of the schema"),
        pytest.param(
            THANKS,
            EVENT,
            {"calendar": "private", "color": "blue"},
            (),
            id="values that occur in the schema",
        ),
        pytest.param(THANKS, EVENT, {"hour": 9, "title": "  "}, (), id="no text to compare"),
        pytest.param(THANKS, EVENT, {"guests": ["Zoe"]}, ("Zoe",), id="an unknown value in a list"),
        pytest.param(
            THANKS,
            EVENT,
            {"place": {"room": "Atrium"}},
            ("Atrium",),
            id="an unknown value in an object",
        ),
        pytest.param(
            THANKS,
            EVENT,
            {"unknown": {"x": "Atrium"}},
            ("Atrium",),
            id="an unknown value without a schema",
        ),
        pytest.param(
            make_offer("Add the dentist."),
            EVENT,
            {"title": "Dentist", "guests": ["Zoe"]},
            (),
            id="one known value is enough",
        ),
        pytest.param(
            DONE,
            EVENT,
            {"title": "Dentist follow-up call"},
            ("Dentist follow-up call",),
            id="after the work, one known word is not enough",
        ),
        pytest.param(
            make_offer("Put something about dentists down."),
            EVENT,
            {"title": "Dentist follow-up call"},
            (),
            id="before the work, one known word is enough",
        ),
        pytest.param(
            DONE,
            EVENT,
            {"title": "A long text of many words that mentions the dentist among all of them"},
            (),
            id="a long text shares few words",
        ),
        pytest.param(make_offer("明日の会議を追加"), EVENT, {"title": "会議"}, (), id="Japanese"),
        pytest.param(
            make_offer("ありがとう"), EVENT, {"title": "会議"}, ("会議",), id="Japanese, not shared"
        ),
        pytest.param(
            make_offer("Room 4711, please."),
            EVENT,
            {"title": "No 4711"},
            (),
            id="a number of the request",
        ),
        pytest.param(THANKS, EVENT, {"title": "it"}, ("it",), id="words that are in any text"),
    ],
)
def test_find_invented_values_returns_values_that_occur_nowhere_in_the_conversation(
    offer: OfferedTools, tool: object, arguments: JsonObject, invented: tuple[str, ...]
) -> None:
    assert isinstance(tool, type(EVENT))
    assert find_invented_values(tool, arguments, offer) == invented


def test_values_in_instructions_and_results_are_not_invented() -> None:
    arguments: JsonObject = {"to": "boss@corp.org"}
    offer = replace(THANKS, instructions=("Reports go to boss@corp.org.",))
    assert find_invented_values(MAIL, arguments, offer) == ()
    offer = replace(THANKS, results=('{"mail": "boss@corp.org"}',))
    assert find_invented_values(MAIL, arguments, offer) == ()


ANN = CompletedCall("send_mail", {"to": "ann@b.org"}, '{"ok": true}', has_failed=False)


@pytest.mark.parametrize(
    ("request_text", "executed", "values"),
    [
        ("Mail ann@b.org and bob@b.org.", (ANN,), ("bob@b.org",)),
        ("Mail ann@b.org.", (ANN,), ()),
        ('Add "Dentist" and “Lunch”.', (DENTIST,), ("Lunch",)),
        ("Read src/app.py, then tell Zoe.", (), ("src/app.py", "Zoe")),
        ("Don't say 'hi' to what's-her-name.", (), ("hi",)),
        ("Paris, please.", (), ()),  # the first word of any sentence has a capital letter
        ("Add it at 6 in the evening.", (DENTIST,), ()),  # the executed call has the hour 18
        ("Add Dentist at 6.", (), ("Dentist", "6", "add_event")),
        ("Add it, and send it.", (DENTIST,), ("send_mail",)),
        ("Add the dentist and the barber.", (DENTIST,), ("barber",)),
        ("Add the dentist and for the barber, please.", (DENTIST,), ("barber",)),
        ("Add the dentist and tell me about it.", (DENTIST,), ()),
        ("Put it into the calendar private.", (DENTIST,), ("private",)),
        ("Put it into the private calendar, where it is on my calendar.", (DENTIST,), ("private",)),
        ("thanks", (ANN,), ()),
    ],
)
def test_find_open_values_returns_the_values_of_the_request_that_no_call_has_used(
    request_text: str, executed: tuple[CompletedCall, ...], values: tuple[str, ...]
) -> None:
    assert find_open_values(make_offer(request_text, *executed)) == values


def test_an_abbreviation_in_a_call_counts_as_use_of_the_value() -> None:
    call = CompletedCall("add_event", {"day": "mon"}, "", has_failed=False)
    assert find_open_values(make_offer("Add it on Monday.", call)) == ()


def test_without_a_user_message_no_value_is_open() -> None:
    assert find_open_values(replace(THANKS, user_texts=())) == ()


@pytest.mark.parametrize(
    ("request_text", "executed", "progress"),
    [
        ("Mail ann@b.org and bob@b.org.", (ANN,), Progress.OPEN),
        ("Mail ann@b.org.", (ANN,), Progress.DONE),
        ("Mail ann@b.org.", (), Progress.OPEN),
        ("Add it at 6.", (DENTIST,), Progress.UNKNOWN),
        ("Thanks!", (DENTIST,), Progress.UNKNOWN),
        ("Thanks!", (), Progress.UNKNOWN),
    ],
)
def test_the_progress_depends_on_which_values_of_the_request_were_used(
    request_text: str, executed: tuple[CompletedCall, ...], progress: Progress
) -> None:
    assert judge_progress(make_offer(request_text, *executed)) is progress


def test_without_a_request_the_progress_is_unknown() -> None:
    assert judge_progress(replace(DONE, user_texts=())) is Progress.UNKNOWN


@pytest.mark.parametrize("unit", mostly_deep(["a", "a.b-", "a+", "a@", "1-"]))
def test_a_long_message_without_spaces_is_searched_in_linear_time(unit: str) -> None:
    """A quadratic search would take minutes."""
    assert len(find_open_values(make_offer(unit * 500_000))) <= 1
