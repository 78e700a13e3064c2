from proxy.processes.launch import model_file_problem
from temper_evals.tiny_model.shipped import MODEL_FILE, content_hash, facts

MOST_BYTES = 3_000_000


def test_the_model_is_a_gguf_of_a_megabyte_or_two() -> None:
    assert model_file_problem(MODEL_FILE) == ""
    assert MODEL_FILE.stat().st_size < MOST_BYTES


def test_what_is_told_of_it_says_how_it_was_made_and_under_which_licence() -> None:
    told = facts()
    assert str(told["licence"]).startswith("MIT")
    for name in ("seed", "parameters", "tokens", "cpu_minutes"):
        assert isinstance(told[name], int)
    log = told["log"]
    assert isinstance(log, list)
    losses = [one["loss"] for one in log if isinstance(one, dict)]
    assert isinstance(losses[0], float)
    assert isinstance(losses[-1], float)
    assert losses[-1] < losses[0]


def test_records_of_another_model_can_be_told_from_those_of_this_one() -> None:
    assert content_hash() == content_hash()
    assert len(content_hash()) == 8
