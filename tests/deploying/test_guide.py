"""The commands of the guide: each is rendered by Helm, or marked as not run."""

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from proxy.conversation.json import JsonObject
from tests.deploying.charts import Renders, merged, rendered
from tests.deploying.test_switches import check_settings
from tests.test_repository import read

GUIDE = read("docs/guides/kubernetes.md")
CHART = "deploy/helm/temper"
VERBS = ("install", "upgrade", "template")


def commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def files() -> dict[str, JsonObject]:
    """Return the files that the guide shows, by the names in their first lines."""
    files = re.findall(r"^```yaml\n# (\S+)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    return {name: yaml.safe_load(text) for name, text in files}


RENDERED = [command for command in commands() if command.startswith("helm ")]


def values_of(command: str, parse: Callable[[str], JsonObject]) -> JsonObject:
    """Read the values of a Helm command with `-f` and `--set`; other flags are an error."""
    helm, verb, _release, chart, *flags = shlex.split(command.partition(" > ")[0])
    assert (helm, chart) == ("helm", CHART)
    assert verb in VERBS
    values: JsonObject = {}
    pairs: Iterator[tuple[str, str]] = zip(flags[::2], flags[1::2], strict=True)
    for flag, value in pairs:
        assert flag in ("-f", "--set")
        values = merged(values, files()[value] if flag == "-f" else parse(value))
    return values


def test_every_command_of_the_guide_is_rendered_here_or_is_marked_as_not_run() -> None:
    others = [command for command in commands() if command not in RENDERED]
    assert [command for command in others if not command.endswith("# not run")] == []
    assert len(RENDERED) >= 6


def test_every_metric_named_in_the_guide_exists() -> None:
    known = re.findall(r'"(temper_\w+)"', read("proxy/observability/metrics.toml"))
    adapted = str(files()["rules.yaml"]["rules"])
    named = {*re.findall(r"\btemper_\w+", GUIDE)}
    assert "'as': 'temper_requests_in_flight'" in adapted
    assert named <= {*known, "temper_requests_in_flight"}
    assert named > {"temper_requests_waiting", "temper_kv_cache_usage_ratio"}


@pytest.mark.deploying
@pytest.mark.parametrize("command", RENDERED)
def test_guide_commands_render_valid_manifests(
    command: str,
    render: Renders,
    validate: Callable[[JsonObject], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is missing")
    chart = rendered(render, values_of(command, helm.parse_set_string))
    for manifest in chart.objects.values():
        validate(manifest)
    monkeypatch.setenv("SEARCH_KEY", "secret")
    check_settings(chart, tmp_path, monkeypatch)
