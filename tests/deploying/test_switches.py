"""Every value of the chart is changed; the result is valid and accepted by Temper."""

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from proxy.conversation.json import JsonObject, JsonValue
from tests.deploying.charts import Rendered, Renders, at_path, merged, rendered
from tests.deploying.config_schema import CHART
from tests.deploying.switches import ANNOTATION, SWITCHES, Switch
from tests.fakes.invoked import temper

pytestmark = pytest.mark.deploying

DEFAULTS: JsonObject = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
KEYS = "/run/secrets/temper"
SOUND: set[tuple[str, str, str]] = (
    set()
)  # sets of settings that were checked; most values of the chart change none


def leaves(values: JsonObject, path: str = "") -> Iterator[tuple[str, JsonValue]]:
    """Return every value that is not a map, by its dotted path."""
    for name, value in values.items():
        here = f"{path}{name.removeprefix(ANNOTATION)}"
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{here}.")
        else:
            yield here, value


def values_of(switch: Switch, *others: JsonObject) -> JsonObject:
    return merged(switch.base, switch.given, *others)


def switched(switch: Switch) -> JsonObject:
    *_, name = switch.path.partition("annotations.")
    if switch.path.startswith("ingress.annotations."):
        return {"ingress": {"annotations": {ANNOTATION + name: switch.value}}}
    return at_path(switch.path, switch.value)


def check_settings(
    chart: Rendered, folder: Path, monkeypatch: pytest.MonkeyPatch, *more: tuple[str, str]
) -> None:
    """Run `temper check` with the settings and variables of the container, unless it has run."""
    texts = (chart.toml(), str(chart.environment()), str(more))
    if texts in SOUND:
        return
    file = folder / "temper.toml"
    file.write_text(chart.toml(), encoding="utf-8")
    for name in ("api-key", "backend-key", "state-secret"):
        (folder / name).write_text("a-key-of-a-test-and-long-enough\n")
    for name, value in (*chart.environment().items(), *more):
        monkeypatch.setenv(name, value.replace(KEYS, str(folder)))
    checked = temper("check", "--config", str(file))
    assert checked.exit_code == 0, checked.output
    SOUND.add(texts)


def test_every_value_of_the_chart_has_another_value_in_this_test() -> None:
    defaults = dict(leaves(DEFAULTS))
    assert {switch.path for switch in SWITCHES} == defaults.keys()
    assert [switch.path for switch in SWITCHES if switch.value == defaults[switch.path]] == []


@pytest.mark.parametrize("switch", SWITCHES, ids=[switch.path for switch in SWITCHES])
def test_changing_a_value_changes_the_manifests_and_keeps_them_valid(
    switch: Switch,
    render: Renders,
    validate: Callable[[JsonObject], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    after = rendered(render, values_of(switch, switched(switch)))
    for manifest in after.objects.values():
        validate(manifest)
    more = [("TEMPER_SERVER__API_KEY", "sk")] if switch.path == "keyFromElsewhere" else []
    check_settings(after, tmp_path, monkeypatch, *more)
    if switch.path in (
        "shape",
        "keyFromElsewhere",
    ):  # the old value is invalid with `given`
        return
    before = rendered(render, values_of(switch))
    assert after.objects != before.objects


def test_settings_in_the_chart_reach_temper_unchanged(
    render: Renders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: JsonObject = {
        "server": {"max_body_bytes": 33554432, "grace_seconds": 12.5, "allowed_hosts": ["a.b"]},
        "models": {
            "qwen/qwen3:8b": {
                "urls": ["http://a:1", "http://b:1"],
                "headers": {"x-tenant": "Bearer ${TENANT_KEY}"},
                "aliases": ["coder"],
            }
        },
        "aliases": {"claude-*": "coder"},
        "context": {"high": 0.95, "never_clear": ['<é> "q" \\ \u2028']},
        "workflows": {"coder": {"required_steps": ["read"], "terminal_tools": ["finish"]}},
        "logging": {"format": "json"},
    }
    values: JsonObject = {"existingSecret": "key", "config": config}
    chart = rendered(render, values)
    monkeypatch.setenv("TENANT_KEY", "secret")
    check_settings(chart, tmp_path, monkeypatch)

    assert tomllib.loads(chart.toml()) == config
