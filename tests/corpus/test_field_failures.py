"""Replies of models as observed, word for word, in every chunking.

A comment at each text gives its source, or the text of which it is a variant.
"""

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.facts import Dropped, RejectedReply
from proxy.guardrails.offer import TextPolicy
from tests.corpus.cases import STRING, Case, Outcome, ask, outcome
from tests.corpus.spellings import Call
from tests.fakes.arrivals import chunkings
from tests.fakes.histories import make_tool

INTEGER: JsonObject = {"type": "integer"}
TOOLS: list[JsonValue] = [
    make_tool("calculate_final_speed", "time", time=INTEGER, initial_speed=INTEGER),
    make_tool("sports.find_team", "team_name", team_name=STRING, stats={"type": "array"}),
    make_tool("read", "filepath", filepath=STRING, limit=INTEGER),
    make_tool("Bash", "command", command=STRING),
    make_tool("tool_search", "query", query=STRING),
    make_tool("get_weather", "location", location=STRING, unit=STRING),
    make_tool("ha_config_set_script", "script", script=STRING),
    make_tool("edit", "newString", newString=STRING, oldString=STRING),
]


def played(reply: str) -> Outcome:
    """Return the outcome of a reply, which must be the same in every chunking."""
    case = Case(reply, reply, ask(tools=TOOLS))
    whole, *others = (outcome(case, pieces) for pieces in chunkings(reply))
    assert all(other == whole for other in others)
    return whole


def calls_of(reply: str) -> list[Call]:
    """Return the calls of a reply that consists of calls."""
    outcome = played(reply)
    assert not outcome.text.strip()
    return [*outcome.calls]


FIVE = ("calculate_final_speed", {"time": 5})
SLOW = ("calculate_final_speed", {"initial_speed": 0, "time": 5})
TEAM = ("sports.find_team", {"team_name": "Real"})


@pytest.mark.parametrize(
    ("reply", "call"),
    [
        (r"[calculate\_final\_speed(time=5)]", FIVE),  # Mixtral
        (r"[calculate\_final\_speed(initial\_speed=0, time=5)]", SLOW),
        (r"calculate\_final\_speed(initial\_speed=0, time=5)", SLOW),
        (r"[sports.find\_team(team\_name='Real')]", TEAM),
        (
            r"[sports.find\_team(stats=['per\_game'], team\_name='A\_B, \_')]",
            ("sports.find_team", {"stats": ["per_game"], "team_name": "A_B, _"}),
        ),
        (r'<|tool_call_start|>[sports.find\_team(team\_name="Real")]<|tool_call_end|>', TEAM),
        (r'{"name": "sports.find\_team", "parameters": {"team\_name": "Real"}}', TEAM),
        (
            r'<tool_call>{"name": "sports.find\_team", "arguments": {"team\_name": "Real"}}'
            "</tool_call>",
            TEAM,
        ),
        (r"<function=sports.find\_team><parameter=team\_name>Real</parameter></function>", TEAM),
        (r'[TOOL_CALLS]sports.find\_team[ARGS]{"team\_name": "Real"}', TEAM),
        (
            r"<tool_call>sports.find\_team<arg_key>team\_name</arg_key><arg_value>Real</arg_value>"
            "</tool_call>",
            TEAM,
        ),
        (r'<|tool_call>call:sports.find\_team{team\_name:<|"|>Real<|"|>}<tool_call|>', TEAM),
        (
            r"<|channel|>commentary to=functions.sports.find\_team<|message|>"
            r'{"team\_name": "Real"}<|call|>',
            TEAM,
        ),
        ('Action: sports.find\\_team\nAction Input: {"team\\_name": "Real"}', TEAM),
    ],
)
def test_a_tool_name_with_an_escaped_underscore_is_recognized(reply: str, call: Call) -> None:
    assert calls_of(reply) == [call]


@pytest.mark.parametrize(
    "reply",
    [
        r"Write `[calculate\_final\_speed(time=5)]` to get it.",
        r"The call is [calculate\_final\_speed(time=5)], as you see.",
        "For example:\n```\n[calculate\\_final\\_speed(time=5)]\n```\n",
        r"[calculate\-final\-speed(time=5)]",
        r"[calculate\_top\_speed(time=5)]",
    ],
)
def test_an_escaped_tool_name_that_is_quoted_or_unknown_is_text(reply: str) -> None:
    outcome = played(reply)
    assert (outcome.calls, outcome.text) == ((), reply)


@pytest.mark.parametrize(
    ("reply", "call"),
    [
        (r"[sports.find\_team(team_name='A\_B')]", ("sports.find_team", {"team_name": "A_B"})),
        (r"get\_weather(location='A\_B')", ("get_weather", {"location": "A_B"})),
        (
            r'<tool_call>{"name": "get\_weather", "arguments": {"location": "A\_B"}}</tool_call>',
            ("get_weather", {"location": "A_B"}),
        ),
    ],
)
def test_argument_names_and_values_are_unescaped_if_the_tool_name_is_escaped(
    reply: str, call: Call
) -> None:
    assert calls_of(reply) == [call]


@pytest.mark.parametrize(
    "reply",
    [
        r"sports.find\_team(team\_name='Real')",  # Mixtral
        "sports_find_team(team_name='Real')",
        "sports.findTeam(team_name='Real')",
        r"[sports\_find\_team(team\_name='Real')]",
    ],
)
def test_a_tool_name_with_other_separators_is_recognized(reply: str) -> None:
    assert calls_of(reply) == [TEAM]


@pytest.mark.parametrize(
    "reply",
    [
        "sports.find a team(team_name='Real')",
        "sports.",
        "calculate(time=5)",
        "sports: team = 'Real'",
    ],
)
def test_part_of_a_tool_name_is_text(reply: str) -> None:
    outcome = played(reply)
    assert (outcome.calls, outcome.text) == ((), reply)


def test_an_escaped_underscore_in_a_value_is_kept_if_the_tool_name_is_not_escaped() -> None:
    reply = r"[sports.find_team(team_name='A\_B')]"
    assert calls_of(reply) == [("sports.find_team", {"team_name": r"A\_B"})]


CK = ("read", {"filepath": "/home/abc/ck/tests/test_ck.py"})
CODE = "<function=read>\n<parameter=filepath>\n"
PATH = f"{CODE}/home/abc/ck/tests/test_ck.py\n</parameter>\n</parameter>\n"


@pytest.mark.parametrize(
    ("reply", "call"),
    [
        (f"<tool_call>\n{PATH}</function>\n</tool_call>", CK),  # llama-swap#856
        (f"{PATH}</function>", CK),
        (f"{PATH}<parameter=limit>\n5\n</parameter>\n</function>", ("read", {**CK[1], "limit": 5})),
        (
            '<invoke name="read"><parameter name="filepath">/a</parameter></parameter></invoke>',
            ("read", {"filepath": "/a"}),
        ),
        (
            "<tool_call>read<arg_key>filepath</arg_key><arg_value>/a</arg_value></arg_value>"
            "</tool_call>",
            ("read", {"filepath": "/a"}),
        ),
        (
            f"{CODE}<a>\n</parameter>\n</parameter>\n</function>",  # may be the intended value
            ("read", {"filepath": "<a>\n</parameter>"}),
        ),
        (f"{CODE}</parameter>\n</parameter>\n</function>", ("read", {"filepath": "</parameter>"})),
    ],
)
def test_a_duplicate_closing_mark_after_a_value_is_not_part_of_the_value(
    reply: str, call: Call
) -> None:
    assert calls_of(reply) == [call]


ONE = f"{CODE}/a\n</parameter>\n</function>"
A = ("read", {"filepath": "/a"})


@pytest.mark.parametrize(
    "reply",
    [
        f"<tool_call>\n{ONE}\n</function>\n</function_invocation>",  # Qwen3.8#178
        f"{ONE}\n</function>\n</function_invocation>",
        f"<tool_call>\n{ONE}\n</tool_call>\n</function_invocation>",
        '<invoke name="read"><parameter name="filepath">/a</parameter></invoke>\n'
        "</function_invocation>",
        '<tool_call>{"name": "read", "arguments": {"filepath": "/a"}}</function_invocation>',
    ],
)
def test_superfluous_closing_marks_after_a_call_are_removed(reply: str) -> None:
    assert calls_of(reply) == [A]


LS = ("Bash", {"command": "ls"})
SEARCH = ("tool_search", {"query": "x"})


@pytest.mark.parametrize(
    ("reply", "call"),
    [
        # llama.cpp#24658, Kimi K2.7
        (
            "<|tool_call_begin|>functions_Bash_2<|tool_call_argument_begin|>"
            '{"command": "ls"}<|tool_call_end|>',
            LS,
        ),
        ('<tool_call>{"name": "functions_Bash_2", "arguments": {"command": "ls"}}</tool_call>', LS),
        # omlx#1830, Gemma 4
        ('<|tool_call>call:google:mcp:read{filepath:<|"|>/a<|"|>}<tool_call|>', A),
        ("call:google:mcp:read{filepath:/a}", A),
        ('<invoke name="files::read"><parameter name="filepath">/a</parameter></invoke>', A),
        # hermes-agent#8993, gpt-oss
        (
            '<tool_call>{"name": "tool_search<|channel|>json", "arguments": {"query": "x"}}'
            "</tool_call>",
            SEARCH,
        ),
        (
            '<|channel|>commentary to=functions.tool_search<|channel|>json<|message|>{"query": "x"}'
            "<|call|>",
            SEARCH,
        ),
    ],
)
def test_a_tool_name_within_markup_is_recognized(reply: str, call: Call) -> None:
    assert calls_of(reply) == [call]


@pytest.mark.parametrize("name", ["functions_Rm_2", "files::write", "google:mcp:", "x<|channel|>"])
def test_unknown_name_with_a_prefix_or_suffix_is_not_a_call(name: str) -> None:
    reply = f'<tool_call>{{"name": "{name}", "arguments": {{"command": "ls"}}}}</tool_call>'
    assert played(reply).calls == ()


HEADER = "to=ha_config_set_script<|message|>"
INVOKED = (
    '<atem:function_calls>\n<atem:invoke name="ha_config_set_script">\n'
    '<atem:parameter name="script">x</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'
)


@pytest.mark.parametrize("before", ["", "One moment."])
def test_a_header_before_tags_belongs_to_the_call(before: str) -> None:
    """Muse Glimmer writes such headers (llama.cpp#29240)."""
    for header in (f" {HEADER}", f" to=functions.{HEADER[3:]}"):
        outcome = played(f"{before}{header}{INVOKED}")
        assert outcome.calls == (("ha_config_set_script", {"script": "x"}),)
        assert outcome.text == before


def test_a_header_between_two_calls_is_removed() -> None:
    reply = f" {HEADER}{INVOKED}<|eom|><|start|>assistant {HEADER}{INVOKED}<|eot|>"
    assert calls_of(reply) == [("ha_config_set_script", {"script": "x"})] * 2
    assert calls_of(f"<|start|>assistant {HEADER}{INVOKED}") == [
        ("ha_config_set_script", {"script": "x"})
    ]


def test_a_tag_closed_by_a_message_mark_is_read() -> None:
    """Muse Glimmer wrote this for Ollama's parser."""
    torn = INVOKED.replace('_script">', "_script<|message|>", 1)
    for reply in (torn, f" {HEADER}{torn}<|eot|>", torn.replace('"script">', '"script<|message|>')):
        assert calls_of(reply) == [("ha_config_set_script", {"script": "x"})]
    assert played(torn.replace('name="ha', "name=ha")).calls == ()
    assert played(torn.replace("<|message|>", "<|message|> is", 1)).calls == ()


PIPED = (
    '<|message|><atem:invoke name="Bash"><atem:parameter name="command">ls</atem:parameter>'
    "</atem:invoke>"
)


def test_a_header_alone_is_text() -> None:
    assert played(f"Write {HEADER} first.").text == f"Write {HEADER} first."
    assert played(f"Write `{HEADER}{INVOKED}` there.").calls == ()


SUN = ("get_weather", {"location": "San Francisco", "unit": "celsius"})
RAIN = ("get_weather", {"location": "Paris"})


def test_a_reply_that_consists_only_of_calls_in_python_is_read() -> None:
    """Granite writes such replies (vllm#43116)."""
    expression = 'get_weather(location="San Francisco", unit="celsius")'
    two = 'get_weather(location="Paris")'
    assert calls_of(expression) == [SUN]
    assert calls_of(f"{expression}\n{two}") == [SUN, RAIN]
    for reply in (
        f"{expression} is how.",
        f"{expression}\nget_news()",
        "get_weather(unit='celsius') or not",
    ):
        assert played(reply).calls == ()


LONG = ("get_weather", {"location": "it's [here], (there)", "unit": "c"})


@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        ("['calculate_final_speed(time=5)']", [FIVE]),  # Arctic
        ("""['sports.find_team(team_name="Real")']""", [TEAM]),
        ("""['get_weather(location="Paris")', "calculate_final_speed(time=5)"]""", [RAIN, FIVE]),
        ("""['get_weather(location="Paris"), calculate_final_speed(time=5)']""", [RAIN, FIVE]),
        ("""['get_weather(location="Paris"), calculate_final_speed(time=5)]""", [RAIN, FIVE]),
        ("""["get_weather(location='it\\'s [here], (there)', unit='c')"]""", [LONG]),
        (r"""["get_weather(location=\"Paris\")"]""", [RAIN]),
        (
            """[ 'get_weather({"location": "Paris"})',\n'calculate_final_speed(time=5)' ]""",
            [RAIN, FIVE],
        ),
        (r"['calculate\_final\_speed(time=5)']", [FIVE]),
        ("```python\n['calculate_final_speed(time=5)']\n```", [FIVE]),
        ("<|tool_call_start|>['calculate_final_speed(time=5)']<|tool_call_end|>", [FIVE]),
        ("<tool_call>['calculate_final_speed(time=5)']</tool_call>", [FIVE]),
        ("[calculate_final_speed(time=5)]\n```", [FIVE]),  # Gemma
        ("calculate_final_speed(time=5)\n```\n", [FIVE]),
        ('{"name": "calculate_final_speed", "arguments": {"time": 5}}\n```', [FIVE]),
    ],
)
def test_quotation_marks_and_fence_marks_around_calls_are_removed(
    reply: str, calls: list[Call]
) -> None:
    assert calls_of(reply) == calls


@pytest.mark.parametrize(
    "reply",
    [
        "['calculate_top_speed(time=5)']",
        "['calculate_final_speed(time=5)', 'and then']",
        "['calculate_final_speed(5)']",
        "The list ['calculate_final_speed(time=5)'] has one.",
        "Write `['calculate_final_speed(time=5)']`.",
        "['calculate_final_speed(time=5)', hello",
    ],
)
def test_a_list_of_other_strings_is_an_answer(reply: str) -> None:
    outcome = played(reply)
    assert (outcome.calls, outcome.text) == ((), reply)


def is_retried(reply: str) -> bool:
    """Return whether a reply is retried, in every chunking."""
    case = Case(reply, reply, ask(tools=TOOLS), policy=TextPolicy.AUTO)
    outcomes = [outcome(case, pieces) for pieces in chunkings(reply)]
    assert not any(outcome.calls for outcome in outcomes)
    is_rejected = {
        any(isinstance(fact, RejectedReply) for fact in outcome.facts) for outcome in outcomes
    }
    assert len(is_rejected) == 1
    return is_rejected.pop()


@pytest.mark.parametrize(
    "reply",
    [
        "<command_Bash>\n cat TASKS.md</command_Bash>",  # ollama#15573
        "<Bash_command>cat TASKS.md</Bash_command>",
        "<Bash:command>cat TASKS.md</Bash:command>",
        "[get_weather(location=place), calculate_final_speed(time=t)]",  # Mistral Nemo
        "[get_weather(location=places['x']), calculate_final_speed(time=10/2)]",
        "['get_weather(location=Paris)', 'calculate_final_speed(time=5)']",  # Arctic
        "['get_weather(location=Paris), calculate_final_speed(time=5)']",
        r"[calculate\_final\_speed(time=t)]",  # Mixtral
        r"calculate\_final\_speed(initial\_speed=v)",
    ],
)
def test_a_call_in_an_unreadable_format_is_retried(reply: str) -> None:
    assert is_retried(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "<command_line>\n cat TASKS.md</command_line>",
        "<Bash_output>\n nothing</Bash_output>",
        "Write <command_Bash>cat</command_Bash> for it.",
        "`<command_Bash>cat</command_Bash>` is how.",
        "[get_weather(location=place), and so on]",
        "['get_news(location=Paris)', 'get_events(time=5)']",
        "The list ['get_weather(location=Paris)'] has one item.",
        r"calculate\_top\_speed(initial\_speed=v)",
    ],
)
def test_text_that_resembles_an_unreadable_call_is_an_answer(reply: str) -> None:
    assert not is_retried(reply)


CSS = ".coin-flip-container {\n  color: red;\n}"


@pytest.mark.parametrize(
    ("reply", "arguments"),
    [
        (f"<|tool_call>call:edit{{newString:`{CSS}`}}<tool_call|>", {"newString": CSS}),
        (
            f"call:edit{{oldString:`a, b: c`,newString:`{CSS}`}}",  # ollama#15315, Gemma 4
            {"oldString": "a, b: c", "newString": CSS},
        ),
    ],
)
def test_backticks_delimit_a_value(reply: str, arguments: JsonObject) -> None:
    assert calls_of(reply) == [("edit", arguments)]


@pytest.mark.parametrize("value", ["`a", "`a` and `b`", "`a`b", "`a<tool_call|>b`"])
def test_a_value_in_unbalanced_backticks_is_not_a_call(value: str) -> None:
    assert played(f"<|tool_call>call:edit{{newString:{value}}}<tool_call|>").calls == ()


BEIJING = ("get_weather", {"location": "Beijing"})
PAIR = "<tool_call>get_weather<arg_key>location=Beijing</arg_value>"


@pytest.mark.parametrize(
    ("reply", "call"),
    [
        ('<tool_call>get_weather>{"location":"Beijing"}', BEIJING),  # GLM-5.3-Flash, SGLang
        ('<tool_call>get_weather>{"location":"Beijing"}</tool_call>', BEIJING),
        (PAIR, BEIJING),
        (f"{PAIR}</tool_call>", BEIJING),
        (
            f"{PAIR}\n<arg_key>unit=a=b</arg_value>\n</tool_call>",
            ("get_weather", {**BEIJING[1], "unit": "a=b"}),
        ),
        (
            f"{PAIR}<arg_key>unit</arg_key><arg_value>c</arg_value></tool_call>",
            ("get_weather", {**BEIJING[1], "unit": "c"}),
        ),
    ],
)
def test_superfluous_glm_marks_are_ignored(reply: str, call: Call) -> None:
    assert calls_of(reply) == [call]


@pytest.mark.parametrize(
    "reply",
    [
        "<tool_call>get_weather<arg_key>Beijing</arg_value></tool_call>",
        "<tool_call>get_weather<arg_key>=Beijing</arg_value></tool_call>",
        "<tool_call>get_weather> is how it begins.",
        f"Write `{PAIR}</tool_call>` there.",
    ],
)
def test_glm_markup_that_is_quoted_or_has_no_keys_is_not_a_call(reply: str) -> None:
    assert played(reply).calls == ()


SOLAR = (
    "<|tool_call:start|>get_weather\n"
    "<|tool_arg:start|>location<|tool_arg:value|>Beijing<|tool_arg:end|>\n<|tool_call:end|>"
)


@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        (SOLAR, [BEIJING]),
        (SOLAR.removesuffix("<|tool_call:end|>"), [BEIJING]),
        (f"{SOLAR}\n{SOLAR}", [BEIJING, BEIJING]),
        (f"<|tool:start|>{SOLAR}<|tool:end|>", [BEIJING]),
        (f"<|tool:start|>\n{SOLAR}\n{SOLAR}\n<|tool:end|>", [BEIJING, BEIJING]),
        (
            "<|tool_call:start|>calculate_final_speed\n<|tool_arg:start|>time<|tool_arg:value|>5"
            "<|tool_arg:end|>\n<|tool_call:end|>",
            [FIVE],
        ),
    ],
)
def test_solar_open_2_calls_are_read(reply: str, calls: list[Call]) -> None:
    assert calls_of(reply) == calls


@pytest.mark.parametrize(
    "reply",
    [
        SOLAR.replace("<|tool_arg:end|>", ""),
        SOLAR.replace("<|tool_arg:value|>", ""),
        f"Write `{SOLAR}` there.",
        f"```\n{SOLAR}\n```\nis the form.",
        "<|tool_call:start|>get_weather, and so on",
    ],
)
def test_solar_markup_that_is_quoted_or_broken_is_not_a_call(reply: str) -> None:
    assert played(reply).calls == ()


INVOKING = '<|content_invoke_tool_json|>{"name": "get_weather", "args": {"location": "Beijing"}}'
SPARK = "<|tool_call|>\nget_weather<arg_key>location</arg_key>\n<arg_value>Beijing</arg_value>\n"


@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        # Inkling: its reasoning, its text and its calls are messages
        (f"<|message_model|>get_weather{INVOKING}<|end_message|>", [BEIJING]),
        (f"get_weather{INVOKING}<|end_message|><|content_model_end_sampling|>", [BEIJING]),
        (
            "<|content_thinking|>I look.<|end_message|><|message_model|>get_weather"
            f"{INVOKING}<|end_message|>",
            [BEIJING],
        ),
        (f" to=self<|message|>I look.<|eom|><|start|>assistant to=Bash{PIPED}", [LS]),  # Muse
        (f"<ifm|think_fast>\nI look.</ifm|think_fast>\n{SOLAR}", [BEIJING]),  # K2 Horizon
        (f"I look.\n</ifm|think_faster>\n{SOLAR}", [BEIJING]),
        (f"<|think:start|>I look.<|think:end|>{SOLAR}", [BEIJING]),  # Solar Open 2
        (f"{SPARK}</tool_call>", [BEIJING]),
        (SPARK, [BEIJING]),
        (f"{SPARK}{SPARK}</tool_call>", [BEIJING, BEIJING]),
    ],
)
def test_reasoning_and_headers_of_new_families_are_not_calls(reply: str, calls: list[Call]) -> None:
    outcome = played(reply)
    assert ([*outcome.calls], outcome.text.replace("I look.", "").strip()) == (
        calls,
        "</ifm|think_faster>" if reply.startswith("I look.") else "",
    )


@pytest.mark.parametrize(
    "reply",
    [
        f"Write `<|message_model|>get_weather{INVOKING}<|end_message|>` there.",
        "<|message_model|>get_weather",
        f"Write `{SPARK}</tool_call>` there.",
        "<|tool_call|>\nget_weather is one.",
    ],
)
def test_quoted_marks_of_new_families_are_text(reply: str) -> None:
    assert played(reply).calls == ()


SKILL = "<tool_call>get_weather\n"
WHOLE = '{"location": "Beijing"}</tool_call>'


@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        (f"{SKILL}{WHOLE[:-12]}\n{SKILL}{WHOLE}", [BEIJING]),  # Laguna, ollama
        (f"{SKILL}{WHOLE[:-12]}\n{SKILL}{WHOLE[:-12]}\n{SKILL}{WHOLE}", [BEIJING]),
        (
            '<tool_call>{"name": "get_weather", "arguments": {"location": "Beijing"}}\n'
            '<tool_call>{"name": "get_weather", "arguments": {"location": "Beijing"}}</tool_call>',
            [BEIJING],
        ),
        (f"{SKILL}{WHOLE}\n{SKILL}{WHOLE}", [BEIJING, BEIJING]),
        (f'{SKILL}{WHOLE[:-12]}\n{SKILL}{{"location": "Paris"}}</tool_call>', [BEIJING, RAIN]),
    ],
)
def test_an_unclosed_call_that_is_written_again_is_returned_once(
    reply: str, calls: list[Call]
) -> None:
    assert calls_of(reply) == calls


def test_uniform_indentation_of_a_reply_is_not_a_code_block() -> None:
    call = '    [TOOL_CALLS] [{"name": "get_weather", "arguments": {"location": "Beijing"}}]\n'
    assert played(f"\n    See this.\n{call}").calls == (BEIJING,)
    assert played(f"\nSee this.\n{call}").calls == ()
    assert played(f"\n  See this.\n{call}").calls == ()
    again = '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"location": "Paris"}}]\n'
    assert played(f"{again}{call}").calls == (RAIN,)


OBJECT: JsonObject = {"type": "json_object"}
DECLINED = '<function_call> {"name": "no_function", "arguments": {}}'  # Granite


def test_a_call_named_no_function_is_replaced_by_text() -> None:
    outcome = played(DECLINED)
    assert (outcome.calls, outcome.text) == ((), "None of the tools fits this request.")
    assert Dropped("no_function") in outcome.facts
    assert not any(isinstance(fact, RejectedReply) for fact in outcome.facts)
    assert played(f"I cannot do that.\n{DECLINED}").text.strip() == "I cannot do that."


def test_a_call_named_no_function_counts_only_if_a_tool_has_this_name() -> None:
    tools = [*TOOLS, make_tool("no_function")]
    case = Case("offered", DECLINED, ask(tools=tools))
    assert outcome(case, [DECLINED]).calls == (("no_function", {}),)
    json = Case("JSON", DECLINED, ask(tools=TOOLS, response_format=OBJECT))
    assert "(no_function)" in outcome(json, [DECLINED]).text
    required = Case("required", DECLINED, ask(tools=TOOLS, tool_choice="required"))
    facts = outcome(required, [DECLINED]).facts
    assert any(isinstance(fact, RejectedReply) for fact in facts)


FACTORIAL = make_tool("math.factorial", "number", number=INTEGER)
TRIANGLE = make_tool("calculate_triangle_area", "base", base=INTEGER, height=INTEGER)
TEAMS = make_tool(
    "sports_ranking_get_team_ranking", "team_name", team_name=STRING, sport_league=STRING
)


@pytest.mark.parametrize(
    "reply",
    [
        # deepseek-coder
        "```python\n        [math.factorial(number=5)]\n        ```\n\n            This line "
        "of code uses the `math.factorial` function to calculate the factorial of 5.",
        # gemma-7b
        "[calculate_triangle_area(base=10, height=5)]\n\nThe above line calculates the area of a "
        "triangle with a base of 10 units and height of 5 units using the "
        "`calculate_triangle_area` function.",
    ],
)
def test_valid_call_followed_by_an_explanation_is_rejected(reply: str) -> None:
    case = Case(reply, reply, ask(tools=[FACTORIAL, TRIANGLE]), policy=TextPolicy.AUTO)
    for pieces in chunkings(reply):
        result = outcome(case, pieces)
        assert (result.calls, result.text) == ((), reply)
        assert RejectedReply("doubtful_call") in result.facts


def test_a_question_next_to_a_call_with_empty_arguments_is_returned_as_text() -> None:
    """Hermes-2-Pro writes such calls, followed by further words."""
    words = (
        "To answer this question, I would need more specific information such as the name of the "
        "basketball league and the season."
    )
    empty: JsonObject = {"team_name": "", "sport_league": ""}
    call: JsonObject = {"arguments": empty, "name": "sports_ranking_get_team_ranking"}
    reply = f"{words}\n<tool_call>\n{json.dump_text(call)}\n</tool_call>"
    case = Case(reply, reply, ask(tools=[TEAMS]))
    for pieces in chunkings(reply):
        result = outcome(case, pieces)
        assert (result.calls, result.text) == ((), words)
        assert Dropped("placeholders") in result.facts


LISBON: JsonObject = {"name": "get_weather", "arguments": {"location": "Lisbon"}}
ASKED = f"<tool_call>{json.dump_text(LISBON)}</tool_call>"


@pytest.mark.parametrize(
    "reply",
    [
        # Hermes-2-Pro and Hermes-2-Theta
        f"{ASKED}\nI found a forecast. Would you like to see it? If so, please specify the day.",
        f"{ASKED}\nI will need to know the city. Please provide me with its name.",
        f"Please provide the city.\n\nOnce you have, I can look it up.\n\n{ASKED}",
    ],
)
def test_call_next_to_a_question_to_the_user_is_retried(reply: str) -> None:
    assert is_retried(reply)


@pytest.mark.parametrize(
    "reply",
    [
        f"What is the weather in Lisbon?\n{ASKED}",
        f"Could you wait a moment? Let me check the weather.\n{ASKED}",
        f"{ASKED}\nThe weather is on its way.",
    ],
)
def test_a_call_next_to_words_that_are_no_question_is_returned(reply: str) -> None:
    assert played(reply).calls == (("get_weather", {"location": "Lisbon"}),)


@pytest.mark.parametrize(
    ("reply", "text", "calls"),
    [
        # Muse Glimmer's header of text for the user
        (" to=user<|message|>Hello there.<|eot|>", "Hello there.", ()),
        ("<|start|>assistant to=user<|message|>Hello there.", "Hello there.", ()),
        (
            f" to=self<|message|>I look.<|eom|><|start|>assistant to=user<|message|>Write {ASKED}.",
            f"Write {ASKED}.",
            (),
        ),
        (
            f" to=user<|message|>I look.<|eom|><|start|>assistant {HEADER}{INVOKED}<|eot|>",
            "I look.",
            (("ha_config_set_script", {"script": "x"}),),
        ),
        ("Write to=user<|message|> there.", "Write to=user<|message|> there.", ()),
    ],
)
def test_text_with_a_header_for_the_user_is_returned_without_the_header(
    reply: str, text: str, calls: tuple[Call, ...]
) -> None:
    outcome = played(reply)
    assert (outcome.calls, outcome.text.strip()) == (calls, text)
