import pytest

from proxy.guardrails.rescue.findings import ArgumentsText, Finding, FoundCalls, Prose, RefusedText
from proxy.guardrails.rescue.formats import TABLE
from proxy.guardrails.rescue.registry import SYNTAXES, order_syntaxes
from proxy.guardrails.rescue.syntax import NoCall, Reason
from tests.fakes.arrivals import chunkings, read_syntax, scan

ADDRESSED, AT_START, REPEATED_RESULT = order_syntaxes(
    ("addressed", "addressed_at_start", "repeated_result")
)[:3]
CALL = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'


def test_a_message_to_the_user_is_consumed_completely() -> None:
    text = f"to=user<|message|>Write {CALL}"
    quoted = NoCall(Reason.QUOTED)
    assert read_syntax(AT_START, f"{text}<|eot|>x") == (quoted, "<|eot|>x")
    assert read_syntax(ADDRESSED, f" {text}") == (quoted, "")


def test_calls_in_a_message_to_the_user_are_not_found() -> None:
    text = f"<|start|>assistant to=user<|message|>\n{CALL}\n<|eom|>{CALL}"
    for pieces in chunkings(text):
        findings = scan(pieces, SYNTAXES, ("look",))
        assert [type(finding) for finding in findings if not isinstance(finding, Prose)][:1] == [
            RefusedText
        ]
        assert sum(isinstance(finding, FoundCalls) for finding in findings) == 1


@pytest.mark.parametrize("end", ["</tool_response>", ""])
def test_a_tool_result_repeated_by_the_model_is_consumed_with_the_calls_in_it(end: str) -> None:
    text = f"<tool_response>\n<tool_call>{{}}</tool_call>\n{end}"
    outcome, rest = read_syntax(REPEATED_RESULT, f"{text} x" if end else text)
    assert (outcome, rest) == (NoCall(Reason.QUOTED), " x" if end else "")


JSON = '{"name": "look", "arguments": {"at": "x"}}'
GENUINE = [
    row.example
    for row in TABLE.formats
    if row.is_marked and row.shape != "quoted" and row.anchor == "anywhere"
]
WEATHER = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
BAR = "\uff5c"
GENUINE += [
    f"<tool_call>{WEATHER}",
    '<function=get_weather>{"city": "Paris"}</function>',
    f'<{BAR}DSML{BAR}tool_calls><{BAR}DSML{BAR}invoke name="get_weather">'
    f'<{BAR}DSML{BAR}parameter name="city">'
    f"Paris</{BAR}DSML{BAR}parameter></{BAR}DSML{BAR}invoke></{BAR}DSML{BAR}tool_calls>",
    f"[TOOL_CALLS][{WEATHER}]",
    "<|python_tag|>get_weather(city='Paris')",
    '<function_calls>get_weather(city="Paris")</function_calls>',
]
NAMES = ("look", "get_weather")
QUOTATIONS = [
    ("Write `", "`."),
    ("For example:\n```\n", "\n```\n"),
    ("```xml\n", "\n```\nis how."),
    ('It said "', '".'),
    ("Never write '", "'!"),
    ("As in “", "”."),
    ("```python\nx = 1\n", ""),
    ("- `", "`\n- x"),
    ("> `", "`"),
    ("~~ `a` and `", "`"),
]


def calls_in(text: str, pieces: list[str] | None = None) -> list[Finding]:
    findings = scan(pieces or [text], SYNTAXES, NAMES)
    return [finding for finding in findings if isinstance(finding, FoundCalls)]


@pytest.mark.parametrize("text", GENUINE)
@pytest.mark.parametrize("before", ["", "Let me look. "])
def test_a_call_outside_of_a_quotation_is_found_at_any_chunking(before: str, text: str) -> None:
    at_once = scan([before + text], SYNTAXES, NAMES)
    calls_ = [finding for finding in at_once if isinstance(finding, FoundCalls)]
    calls = [call for finding in calls_ for call in finding.calls]
    assert [(call.name.removeprefix("functions."), call.arguments) for call in calls] == [
        ("get_weather", {"city": "Paris"})
    ]
    expected = [finding for finding in at_once if not isinstance(finding, ArgumentsText)]
    for pieces in chunkings(before + text):
        findings = scan(pieces, SYNTAXES, NAMES)
        assert [
            finding for finding in findings if not isinstance(finding, ArgumentsText)
        ] == expected


@pytest.mark.parametrize("text", GENUINE)
@pytest.mark.parametrize(("before", "after"), QUOTATIONS)
def test_a_call_inside_a_quotation_is_never_found(before: str, text: str, after: str) -> None:
    assert calls_in(before + text + after) == []


@pytest.mark.parametrize("text", ["[look(at='x')]", "call:look{at:x}", f"\n{JSON}\n</tool_call>"])
def test_a_call_without_a_mark_is_found_only_at_the_end_of_the_text(text: str) -> None:
    assert len(calls_in(text)) == 1
    assert len(calls_in(f"So:\n{text}")) == 1
    assert calls_in(f"{text}\nis it.") == []
    assert calls_in(text.replace("look", "search")) == []


def test_every_syntax_has_a_unique_name_and_openings() -> None:
    assert len({syntax.name for syntax in SYNTAXES}) == len(SYNTAXES)
    assert all(syntax.openings and all(syntax.openings) for syntax in SYNTAXES)


def test_the_syntaxes_of_a_profile_come_first_and_all_others_keep_their_order() -> None:
    names = [syntax.name for syntax in order_syntaxes(("mistral", "bare_json"))]
    others = [syntax.name for syntax in SYNTAXES if syntax.name not in names[:2]]
    assert names == ["mistral", "bare_json", *others]
    assert order_syntaxes(()) == SYNTAXES


def test_an_unknown_syntax_name_raises_an_error() -> None:
    with pytest.raises(KeyError, match="klingon"):
        order_syntaxes(("klingon",))
