"""`temper tune` on a real llama-server, and `temper serve` with its results.

The template writes the reasoning effort into the prompt, and the model is right with a low effort.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from proxy.conversation.json import JsonObject
from proxy.processes.process import RunningServer
from proxy.profiles.tuned import keys_of
from proxy.settings import Settings
from temper_evals.demo.chat_template import chat_template
from temper_evals.demo.scripted_model import build_scripted_model
from temper_evals.endpoints import look_up
from temper_evals.loop import ModelTarget
from temper_evals.model_setups import ServedSetup
from temper_evals.records import Records
from temper_evals.scenarios.files import load_scenarios
from temper_evals.temper_server import temper_in_front
from temper_evals.tune_command import write_earned
from temper_evals.tuning import (
    TemperRunners,
    Tuning,
    Values,
    candidates_for,
    earned_by,
    environment_of,
)
from tests.fakes.command import processes_with, temper
from tests.fakes.llama import plan_for, serving
from tests.timeouts import TIMEOUT_SECONDS

HEAD = """
{%- if add_generation_prompt %}
  {%- if reasoning_effort is defined %}{{- '[[' + reasoning_effort + ']]' }}{% endif %}"""
SCRIPTS = {
    "default": "I wonder and wonder, and I am lost.",
    "[[low]]": "It is clear.",
    "[[high]]": "I wonder and wonder and wonder, and I am lost.",
}
PROFILE = """
name = "eager"
title = "A model that knows efforts"
sources = ["https://example.org/eager"]
[match]
names = ["scripted"]
[calls]
tools = "json"
[reasoning]
efforts = ["high", "low"]
"""
TASK = 'user = "Is it clear?"\n[expect]\nwords = ["It is clear."]\n'
ASKED: JsonObject = {"messages": [{"role": "user", "content": "Is it clear?"}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    head, _ = chat_template().split("\n{%- if add_generation_prompt %}")
    template = f"{head}{HEAD}\n  {{{{- '<|im_start|>assistant\\n' }}}}\n{{%- endif %}}"
    model = tmp_path_factory.mktemp("model") / "efforts.gguf"
    build_scripted_model(model, SCRIPTS, context_tokens=1024, template=template)
    with serving(plan_for(model, context_tokens=1024)) as running:
        yield running


async def ask(target: ModelTarget) -> tuple[str, str]:
    """Send a request; return the reply and the tuned options that its headers report."""
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS) as client:
        answer = await client.post(f"{target.url}/v1/chat/completions", json=ASKED)
        models = await client.get(f"{target.url}/v1/models")
    content = answer.json()["choices"][0]["message"]["content"]
    return content, models.json()["data"][0].get("tuned", "")


@pytest.mark.deep
async def test_serve_uses_the_effort_that_tune_selected(
    server: RunningServer, tmp_path: Path
) -> None:
    home, tasks, state = (tmp_path / name for name in ("own", "tasks", "state"))
    for folder in (home, tasks, state):
        folder.mkdir()
    (home / "eager.toml").write_text(PROFILE, encoding="utf-8")
    (tasks / "clear.toml").write_text(TASK, encoding="utf-8")
    base: Values = {"profile": {"folder": str(home)}}
    headers = {"authorization": f"Bearer {server.api_key}"}
    settings = Settings.model_validate({"profile": {"folder": home}})
    target = ModelTarget(server.base_url, "scripted", headers)
    known = await look_up(settings, target, "auto")
    setup = ServedSetup("scripted", target)
    efforts = [candidate for candidate in candidates_for(known) if candidate.is_effort]
    with closing(Records(tmp_path / "runs", {"hash": "1"})) as records:
        runners = TemperRunners(target, setup, records)
        tuning = Tuning(runners.open, load_scenarios(tasks), 60.0, base, 9, efforts)
        await tuning.run()

    low, high = (verdict.sentence() for verdict in tuning.verdicts)
    assert low.startswith("effort low: 4 helped, 0 harmed of 4: on (")
    assert high == "effort high: not tried: off"

    path = state / "temper" / "tuned" / "scripted.toml"
    write_earned(path, keys_of(known), earned_by(tuning.verdicts))
    environment = {
        **environment_of(base),
        "XDG_CACHE_HOME": str(state),
        "TEMPER_BACKEND__API_KEY": server.api_key,
    }
    async with temper_in_front(target, environment, takes_tuned=True) as temper:
        assert await ask(temper) == (SCRIPTS["[[low]]"], "effort = low")


@pytest.mark.deep
def test_tune_of_a_model_file_ends_after_the_time_limit(
    scripted_model: Path, tmp_path: Path
) -> None:
    model = tmp_path / "tuned.gguf"  # a copy, because other tests use the shared file
    model.hardlink_to(scripted_model)
    flags = ("--model", str(model), "--minutes", "0.1", "--dry-run")
    with temper("tune", *flags, XDG_CACHE_HOME=str(tmp_path)) as process:
        output, complained = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0, complained
    assert "close_out always" in output
    assert "The time was too short" in output
    assert processes_with(str(model)) == []
