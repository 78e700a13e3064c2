import pytest

from proxy.guardrails.rescue.formats import TABLE
from temper_evals.benchmarks.gold_calls import syntax_templates
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.simulated.renderings import as_text

EXAMPLE = PlannedCall("get_weather", {"city": "Paris"})


@pytest.mark.parametrize("name", syntax_templates())
def test_each_syntax_template_writes_the_call_as_in_the_example_of_the_format(name: str) -> None:
    row = next(row for row in TABLE.formats if row.name == name)
    text = as_text(EXAMPLE, syntax_templates()[name]).replace(
        '{"city":"Paris"}', '{"city": "Paris"}'
    )
    assert text == row.example
