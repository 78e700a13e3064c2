from pathlib import Path
from types import SimpleNamespace

import pytest

from proxy.errors import InvalidConfiguration
from temper_evals.benchmarks import registry, tau2
from temper_evals.model_setups import plan_launch


def test_the_name_of_a_tau2_task_has_its_category_and_number() -> None:
    given = SimpleNamespace(id="[mms_issue]airplane_mode_on|unseat_sim_card[PERSONA:Easy]")
    task = tau2.TicketTask(given, 3, ())
    assert task.family == "tau2:mms_issue"
    assert task.name == "tau2-mms_issue-3"


def test_the_error_for_an_unknown_tau2_category_lists_the_known_categories() -> None:
    with pytest.raises(InvalidConfiguration, match="no category 'sms'; known: mms_issue, mobile"):
        registry.tasks_of("tau2:sms", None)


def test_a_model_file_for_tau2_is_launched_with_a_larger_window() -> None:
    usual = plan_launch(Path("some.gguf"), "some").context_tokens
    for benchmark, is_larger in (("tau2:mms_issue", True), ("bfcl", False), ("", False)):
        window = registry.window_of(benchmark)
        launch = plan_launch(Path("some.gguf"), "some", window=window)
        assert (launch.context_tokens > usual) is is_larger
