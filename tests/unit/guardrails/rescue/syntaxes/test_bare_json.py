from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from proxy.guardrails.rescue.syntaxes.bare_json import BareJson, UnopenedJson
from tests.fakes.arrivals import read_syntax

PING = '{"name": "ping", "parameters": {"host": "a"}}'
CALL = WrittenCall("ping", {"host": "a"})


def test_an_object_or_a_list_is_read_from_its_first_bracket() -> None:
    assert read_syntax(BareJson(), PING) == (Calls((CALL,)), "")
    assert read_syntax(BareJson(), f"[{PING}]\n") == (Calls((CALL,)), "")
    assert read_syntax(BareJson(), f"{PING}\n{PING}") == (Calls((CALL, CALL)), "")


def test_an_answer_that_happens_to_be_json_is_given_up_early() -> None:
    result = read_syntax(BareJson(), '{"answer": [1, 2, 3]}')
    assert result == (NotACall(Reason.NOT_A_CALL), "[1, 2, 3]}")
    assert read_syntax(BareJson(), '{"name": "ping"}')[0] == NotACall(Reason.NOT_A_CALL)
    assert read_syntax(BareJson(), "[see above]")[0] == NotACall(Reason.NOT_A_CALL)


def test_json_on_its_own_line_needs_all_of_its_brackets() -> None:
    bare = Calls((CALL,), is_bare=True)
    assert read_syntax(UnopenedJson(), f"\n{PING}\n</tool_call>") == (bare, "")
    assert read_syntax(UnopenedJson(), f"\n{PING}\n") == (bare, "")
    assert read_syntax(UnopenedJson(), f"\n[{PING}]") == (bare, "")
    assert read_syntax(UnopenedJson(), f"\n{PING[:-1]}\n")[0] == NotACall(Reason.NOT_A_CALL)
    assert read_syntax(UnopenedJson(), '\n{"answer": 1}</tool_call>') == (
        NotACall(Reason.NOT_A_CALL),
        "1}</tool_call>",
    )
