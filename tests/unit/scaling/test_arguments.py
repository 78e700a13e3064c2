from pathlib import Path

import pytest

from proxy.errors import InvalidConfiguration
from proxy.scaling.arguments import (
    Arguments,
    check_settings,
    deployment_options,
    fingerprint,
    is_unit,
    read_arguments,
)
from proxy.settings import Settings, load_settings

KEY = "TEMPER_SERVER__API_KEY_FILE"
POOL = '[backend]\nurl = "http://127.0.0.1:1"\n[server]\nmax_connections = 99\ngrace_seconds = 7\n'
UNIT = '[model]\npath = "m.gguf"\nslots = 3\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a settings file; the environment variable for the API key file is set."""
    key = tmp_path / "key"
    key.write_text("secret")
    monkeypatch.setenv(KEY, str(key))
    return tmp_path / "temper.toml"


def settings_of(file: Path, text: str, **values: object) -> tuple[Arguments, Settings]:
    file.write_text(text)
    arguments = read_arguments({"config": str(file), **values})
    return arguments, check_settings(arguments)


def test_arguments_with_the_value_none_get_their_defaults() -> None:
    values = dict.fromkeys(("config", "scraping", "affinity", "replicas", "gpus"))
    assert read_arguments(values) == Arguments()


def test_all_arguments_get_their_defaults_if_none_are_given() -> None:
    assert read_arguments({}) == Arguments()
    assert Arguments().file == Path("temper.toml")


def test_arguments_give_the_same_result_as_text_and_as_typed_values() -> None:
    expected = Arguments("t.toml", "2", 2, 3, 0.5, 1.0, "load", "/run/temper")
    texts = {"replicas": "2", "most": "3", "cpus": "0.5", "gpus": "1", "revision": "2"}
    values = {"replicas": 2, "most": 3, "cpus": 0.5, "gpus": 1, "revision": 2}
    others = {"config": "t.toml", "affinity": "load", "scraping": "/run/temper"}
    assert read_arguments({**others, **texts}) == expected
    assert read_arguments({**others, **values}) == expected


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"replica": 2}, "did you mean replicas"),
        ({"zzz": 2}, "config, revision, replicas"),
        ({"replicas": 0}, "at least 1"),
        ({"replicas": "many"}, "at least 1"),
        ({"most": "-1"}, "at least 1"),
        ({"gpus": "x"}, "at least 0"),
        ({"cpus": -1}, "at least 0"),
        ({"cpus": "inf"}, "at least 0"),
        ({"affinity": "chance"}, "session or load"),
    ],
)
def test_an_invalid_argument_raises_invalid_configuration(
    values: dict[str, object], problem: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=problem):
        read_arguments(values)


def test_without_an_api_key_the_settings_of_a_cluster_are_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY)
    with pytest.raises(InvalidConfiguration, match=KEY):
        settings_of(file, POOL)
    keys = file.with_name("keys")
    keys.write_text("ann secret-of-ann\n")
    settings_of(file, f'{POOL}api_keys_file = "{keys}"\n')


def test_replicas_auto_without_a_managed_engine_is_refused(file: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"model\.path"):
        settings_of(file, POOL, replicas="auto")


def test_the_limits_of_ray_serve_are_not_below_the_limits_of_temper(file: Path) -> None:
    options = deployment_options(*settings_of(file, POOL, replicas=2, cpus=0.5))
    assert options["num_replicas"] == 2
    assert options["max_ongoing_requests"] == 99
    assert options["graceful_shutdown_timeout_s"] == 12
    assert options["ray_actor_options"] == {"num_cpus": 0.5, "num_gpus": 0.0}
    assert "request_router_config" not in options


def test_replicas_with_a_managed_engine_are_autoscaled_and_routed_by_session(file: Path) -> None:
    options = deployment_options(*settings_of(file, UNIT, replicas="auto", most=6, gpus=1))
    assert options["autoscaling_config"] == {
        "min_replicas": 1,
        "max_replicas": 6,
        "target_ongoing_requests": 3,
        "downscale_delay_s": 600.0,
    }
    assert "num_replicas" not in options
    assert "ConsistentHashRouter" in str(options["request_router_config"])


def test_affinity_selects_whether_requests_are_routed_by_session(file: Path) -> None:
    units = deployment_options(*settings_of(file, UNIT, affinity="load"))
    assert "request_router_config" not in units
    pool = settings_of(file, POOL, affinity="session")
    assert "request_router_config" in deployment_options(*pool)
    assert "request_router_config" not in deployment_options(*pool, is_behind_haproxy=True)


def test_is_unit_is_true_if_the_models_section_has_a_model_with_a_path() -> None:
    assert is_unit(load_settings(None, {"models": {"one": {"path": "m.gguf"}}}))


def test_changed_settings_or_another_revision_change_the_fingerprint(file: Path) -> None:
    file.write_text(POOL)
    same = [fingerprint(Arguments(config=str(file))) for _ in range(2)]
    assert same[0] == same[1]
    assert fingerprint(Arguments(config=str(file), revision="2")) != same[0]
    file.write_text(UNIT)
    assert fingerprint(Arguments(config=str(file))) != same[0]


def test_without_a_settings_file_the_environment_variables_are_used(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    monkeypatch.setenv("TEMPER_BACKEND__URL", "http://127.0.0.1:1")
    assert check_settings(Arguments()).backend.url == "http://127.0.0.1:1"
    assert fingerprint(Arguments())
