from pathlib import Path

import pytest

from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from temper_evals.scenarios.files import FileScenario, load_scenario, load_scenarios
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.task import try_call

WEATHER = """
user = "Is it warm in Oslo? Then tell Ada."
system = "Be brief."
limit = 6

[[tool]]
name = "get_weather"
description = "The weather of a city."
schema = { type = "object", properties = { city = { type = "string" } }, required = ["city"] }
[[tool.result]]
arguments = { city = "Oslo" }
returns = { degrees = 21 }
[[tool.result]]
arguments = { city = "Bergen" }
fails = "no station"

[[tool]]
name = "tell"
changes = true

[expect]
words = ["21"]
calls = [{ name = "get_weather", arguments = { city = "Oslo" } },
         { name = "tell", arguments = { who = "Ada" } }]
"""
LOOK = PlannedCall("get_weather", {"city": "Oslo"})
TELL = PlannedCall("tell", {"who": "Ada"})


def scenario(folder: Path, text: str = WEATHER) -> FileScenario:
    path = folder / "weather.toml"
    path.write_text(text, encoding="utf-8")
    return load_scenario(path)


def judge(
    file_scenario: FileScenario, calls: list[PlannedCall], answer: str
) -> tuple[bool, str, int]:
    world = file_scenario.world()
    for call in calls:
        try_call(world, call)
    transcript: list[JsonObject] = [{"role": "assistant", "content": answer}] if answer else []
    verdict = file_scenario.judge(world, transcript)
    return verdict.right, verdict.why, verdict.damage


def test_a_scenario_file_is_loaded_as_a_task_that_is_judged(tmp_path: Path) -> None:
    loaded = scenario(tmp_path)
    assert (loaded.name, loaded.family, loaded.limit) == ("weather", "own", 6)
    request = loaded.request(3)
    assert request["seed"] == 3
    assert isinstance(request["messages"], list)
    assert len(request["messages"]) == 2
    assert loaded.first_fields() == {}
    assert try_call(loaded.world(), LOOK) == '{"degrees":21}'
    assert "no station" in try_call(loaded.world(), PlannedCall("get_weather", {"city": "Bergen"}))
    assert judge(loaded, [TELL, LOOK], "It has 21 degrees.") == (True, "", 0)


@pytest.mark.parametrize(
    ("calls", "answer", "why", "damage"),
    [
        ([LOOK], "21", "missing call", 0),
        ([LOOK, TELL], "warm", "the answer lacks", 0),
        ([LOOK, TELL], "", "no answer", 0),
        ([LOOK, TELL, PlannedCall("tell", {"who": "Bob"})], "21", "unrequested change", 1),
        ([LOOK, TELL, TELL, TELL], "21", "unrequested change", 2),
        ([LOOK, TELL], '{"name": "tell", "arguments": {"x": 21}}', "the answer shows a call", 0),
    ],
)
def test_the_judgment_of_a_wrong_run_has_the_reason_and_the_number_of_damaging_calls(
    tmp_path: Path, calls: list[PlannedCall], answer: str, why: str, damage: int
) -> None:
    right, reason, done = judge(scenario(tmp_path), calls, answer)
    assert not right
    assert reason.startswith(why)
    assert done == damage


def test_every_call_is_wrong_if_a_scenario_file_sets_no_calls_to_true(tmp_path: Path) -> None:
    text = WEATHER.partition("[expect]")[0] + "[expect]\nno_calls = true\n"
    assert judge(scenario(tmp_path, text), [LOOK], "hello")[0] is False
    assert judge(scenario(tmp_path, text), [], "hello")[0] is True


def test_the_request_of_a_scenario_without_tools_has_no_field_tools(tmp_path: Path) -> None:
    assert "tools" not in scenario(tmp_path, 'user = "hi"').request(0)


@pytest.mark.parametrize("text", ["user = 3", "usr = 'x'", "user ="])
def test_the_error_for_an_invalid_scenario_file_names_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidConfiguration, match=r"weather\.toml"):
        scenario(tmp_path, text)


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("description", "descripton", "tool 1 descripton: unknown key; known: name, desc"),
        ("limit", "limits", "limits: unknown key; known: user, system, limit, tool, exp"),
        ("returns", "return", "tool 1 result 1 return: unknown key; known: arguments, r"),
        ("words", "word", "expect word: unknown key; known: calls, words, no_calls"),
        ('"tell", arg', '"tell", arrg', "expect calls 2 arrguments: unknown key"),
        ("limit = 6", "limit = 0", "limit: Input should be greater than or equal to 1"),
        ('name = "tell"', 'name = "get_weather"', "two tools have the name 'get_weather'"),
        ('"object"', '"objekt"', "tool 'get_weather': invalid schema: \"objekt\" is not valid"),
        ('{ city = "Bergen"', '{ town = "Bergen"', "result 2: the arguments do not match"),
        ('fails = "no', 'returns = 3\nfails = "no', "result 2: returns and fails exclude"),
        ('city = "Bergen"', 'city = "Oslo"', "result 2: duplicate arguments"),
        ("[expect]", "[[tool.result]]\nreturns = 3\n[expect]", "'tell': result 1: a tool with `ch"),
        ("[expect]", "[expect]\nno_calls = true", "expect: calls and no_calls exclude each other"),
        ('{ name = "tell"', '{ name = "tel"', "expect calls 2, 'tel': unknown tool 'tel'"),
        ('{ name = "get_weather", arguments = { city = "Oslo"', '{ name = "get_weather", '
         'arguments = { city = "Rome"', "expect calls 1, 'get_weather': the tool has no result"),
    ],
)  # fmt: skip
def test_the_error_for_an_inconsistent_scenario_file_says_where_it_is(
    tmp_path: Path, before: str, after: str, problem: str
) -> None:
    assert before in WEATHER
    with pytest.raises(InvalidConfiguration) as raised:
        scenario(tmp_path, WEATHER.replace(before, after, 1))
    assert problem in str(raised.value)


def test_load_scenarios_refuses_a_folder_without_scenarios(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="contains no"):
        load_scenarios(tmp_path)
    scenario(tmp_path)
    assert [loaded.name for loaded in load_scenarios(tmp_path)] == ["weather"]
