from temper_evals.demo.tiny import demonstration
from temper_evals.tiny_model.chat_template import MUTE
from temper_evals.tiny_model.shipped import MODEL_FILE


def test_the_introduction_says_what_the_model_is_and_fits_a_terminal() -> None:
    introduction = demonstration().introduction
    assert "knows two dozen tools and nothing else" in introduction
    assert all(len(line) <= 100 for line in introduction.splitlines())


def test_no_two_scenarios_are_alike_and_what_the_model_writes_is_not_known_before() -> None:
    scenarios = demonstration().scenarios
    assert len({one.prompt for one in scenarios}) == len(scenarios) == 6
    assert not any(one.written for one in scenarios)


def test_the_shipped_model_runs_with_a_template_that_hides_its_calls() -> None:
    shown = demonstration()
    assert shown.model_file == MODEL_FILE
    assert shown.flags[-2:] == ("--chat-template", MUTE)
    assert len(shown.tools) == 5
