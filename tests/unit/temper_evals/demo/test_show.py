import io
import shlex

import pytest
from rich.console import Console

from proxy.conversation import json
from proxy.dialects.lenient_json import member
from proxy.dialects.openai_chat.decode import decode_request
from proxy.guardrails.schemas.schema import compile_schema
from temper_evals.demo import own_model, scenarios
from temper_evals.demo.answers import AnswerKind, ClientAnswer, Comparison
from temper_evals.demo.own_model import demonstration_of
from temper_evals.demo.scenarios import SCRIPTED, SCRIPTS, Call, DemoScenario
from temper_evals.demo.show import commands, document, summary, table

URL = "http://127.0.0.1:8367"
LEAKED = DemoScenario("a call as text", "Weather?", "<call>[bold]weather[/bold]")
CALL = ClientAnswer(AnswerKind.CALL, 'get_weather(city="Lyon")', "asked 2 times")
TEXT = ClientAnswer(AnswerKind.TEXT, LEAKED.reply)


def compared(without: ClientAnswer = TEXT, through: ClientAnswer = CALL) -> Comparison:
    return Comparison(LEAKED, without, through)


def printed(*comparisons: Comparison, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table(comparisons, width, "what"))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def cells(*comparisons: Comparison) -> list[str]:
    """Return the text of each of the four columns, with all rows in one string."""
    lines = [line for line in printed(*comparisons).splitlines() if line.startswith("│")]
    columns = zip(*(line.split("│")[1:-1] for line in lines), strict=True)
    return [" ".join(" ".join(column).split()) for column in columns]


@pytest.mark.parametrize(
    ("introduction", "words"),
    [(scenarios.INTRODUCTION, "not a language model"), (own_model.INTRODUCTION, "Your model")],
)
def test_an_introduction_names_the_model_and_fits_a_terminal(introduction: str, words: str) -> None:
    assert words in introduction
    assert all(len(line) <= 80 for line in introduction.splitlines())


def test_a_row_shows_the_output_of_the_model_and_the_answers_without_and_with_temper() -> None:
    assert cells(compared()) == [
        "a call as text",
        "<call>[bold]weather[/bold]",
        "no call, only the text",
        'get_weather(city="Lyon") (asked 2 times)',
    ]


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (ClientAnswer(AnswerKind.TEXT, "Other words."), "no call, only text: Other words."),
        (ClientAnswer(AnswerKind.ERROR, "Broken."), "an error: Broken."),
        (ClientAnswer(AnswerKind.UNUSABLE_CALL, "fly()"), "unusable call: fly()"),
        (ClientAnswer(AnswerKind.CALL, "walk()"), "walk()"),
    ],
)
def test_each_kind_of_answer_is_described_in_its_cell(answer: ClientAnswer, shown: str) -> None:
    assert cells(compared(without=answer))[2] == shown
    assert cells(compared(through=answer))[3] == shown


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_of_the_table_is_wider_than_the_terminal(width: int) -> None:
    lines = printed(compared(), width=width).splitlines()
    assert max(map(len, lines)) <= min(width, 120)


def test_the_summary_counts_usable_calls_without_and_with_temper() -> None:
    unusable = ClientAnswer(AnswerKind.UNUSABLE_CALL, "fly()")
    comparisons = [compared(), compared(CALL, CALL), compared(unusable, TEXT)]
    assert summary(comparisons) == "Usable calls: 1 of 3 without Temper, 2 of 3 with Temper."
    assert summary(comparisons) in printed(*comparisons)


def test_the_document_contains_every_comparison() -> None:
    content = document([compared()], URL, "a model")
    assert content["model"] == "a model"
    assert content["url"] == URL
    assert content["usable_calls"] == {"without": 0, "with": 1, "of": 1}
    (request,) = content["requests"] if isinstance(content["requests"], list) else []
    assert isinstance(request, dict)
    assert request["without"] == {
        "kind": "text",
        "usable": False,
        "answer": LEAKED.reply,
        "effort": "",
    }
    assert request["with"] == {
        "kind": "call",
        "usable": True,
        "answer": CALL.words,
        "effort": "asked 2 times",
    }


def test_the_example_commands_are_short_and_their_prompts_are_in_the_scripts() -> None:
    for _, command in commands(SCRIPTED, URL):
        first, second = command.splitlines()
        assert first.endswith("\\")
        assert len(first) + len(second) < 450
        words = shlex.split(first[:-1] + second)
        assert f"{URL}/v1/chat/completions" in words
        request = decode_request(words[words.index("-d") + 1].encode())
        assert request.messages[0].text in SCRIPTS
        assert [tool.name for tool in request.tools] == ["get_weather"]


def test_the_example_commands_show_a_plain_answer_a_stream_and_a_text_policy() -> None:
    plain, stream, policy = (command for _, command in commands(SCRIPTED, URL))
    assert "stream" not in plain
    assert json.dump_text({"stream": True}).strip("{}") in stream
    assert "-H 'x-temper-text-policy: accept'" in policy


def test_the_example_commands_for_a_model_of_the_user_contain_its_name() -> None:
    plain, stream = (
        shlex.split(command) for _, command in commands(demonstration_of("my 'model'"), URL)
    )
    assert member(json.parse(plain[-1]), "model") == "my 'model'"
    assert member(json.parse(stream[-1]), "stream") is True


def test_the_expected_calls_for_a_model_of_the_user_match_the_schemas() -> None:
    shown = demonstration_of("some")
    schemas = {str(member(tool, "function", "name")): tool for tool in shown.tools}
    for scenario in shown.scenarios:
        assert scenario.right is not None
        name, arguments = scenario.right
        schema = member(schemas[name], "function", "parameters")
        assert isinstance(schema, dict)
        assert compile_schema(schema).is_valid(arguments)


def test_a_usable_call_that_is_not_the_expected_call_is_shown_as_wrong() -> None:
    right: Call = ("get_weather", {"city": "Graz", "days": 3})
    scenario = DemoScenario("a city", "Weather?", right=right)
    wrong = Comparison(scenario, TEXT, CALL)
    same: Call = ("get_weather", {"days": 3, "city": "Graz"})  # arguments in another order
    good = Comparison(scenario, TEXT, ClientAnswer(AnswerKind.CALL, "shown", calls=(same,)))
    assert cells(wrong)[3] == 'get_weather(city="Lyon") (wrong) (asked 2 times)'
    assert cells(good)[3] == "shown"
    first, second = summary([wrong, good]).splitlines()
    assert first == "Usable calls: 0 of 2 without Temper, 2 of 2 with Temper."
    assert second == "Right calls: 0 of 2 without Temper, 1 of 2 with Temper."
    counts = document([wrong, good], URL, "a model")["right_calls"]
    assert counts == {"without": 0, "with": 1, "of": 2}
