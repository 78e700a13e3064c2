from pathlib import Path

import pytest

from proxy.api.assembly import server_options_of
from proxy.context.budget import BudgetMode
from proxy.conversation.workflows import Prerequisite, Workflow
from proxy.errors import InvalidConfiguration
from proxy.guardrails.offer import TextPolicy
from proxy.profiles.known_model import Overrides
from proxy.serving.context_fitting import FittingMode
from proxy.settings import Settings, load_settings


def settings_of(**sections: dict[str, object]) -> Settings:
    return load_settings(None, sections)


def test_settings_are_converted_to_server_options() -> None:
    made = server_options_of(
        settings_of(
            server={"api_key": "k", "max_body_bytes": 5000, "keep_alive_seconds": 3},
            guardrails={"text_policy": "accept", "strict": True, "max_attempts": 2},
            backend={"deadline_seconds": 7},
        )
    )
    assert (dict(made.access.keys), made.body.size) == ({"api_key": "k"}, 5000)
    assert (made.policy.text_policy, made.policy.attempts) == (TextPolicy.ACCEPT, 2)
    assert made.policy.is_strict
    assert (made.timeouts.keep_alive, made.timeouts.deadline) == (3, 7)
    assert not made.forwards_authorization
    plain = server_options_of(Settings())
    assert plain.forwards_authorization
    assert (plain.policy.text_policy, plain.overrides) == (None, Overrides())
    assert len(plain.profiles) > 25


def test_the_process_count_is_workers_times_replicas() -> None:
    made = server_options_of(settings_of(server={"workers": 3}, backend={"replicas": 2}))
    assert (made.workers, made.replicas, made.process_count) == (3, 2, 6)
    assert server_options_of(Settings()).process_count == 1


def test_workflow_settings_are_converted_for_each_model() -> None:
    rules = {"required_steps": ["a"], "prerequisites": [{"tool": "b", "needs": "a"}]}
    made = server_options_of(settings_of(workflows={"agent": rules}))
    assert made.workflows == {"agent": Workflow(("a",), (Prerequisite("b", "a"),))}


def test_on_a_loopback_address_the_host_must_be_local_or_in_allowed_hosts() -> None:
    hosts = server_options_of(Settings()).access.hosts
    assert hosts == frozenset({"localhost", "127.0.0.1", "::1"})
    access = server_options_of(settings_of(server={"allowed_hosts": ["Box.local"]})).access.hosts
    assert access == frozenset({"localhost", "127.0.0.1", "::1", "box.local"})


def test_on_other_addresses_any_host_is_allowed_unless_allowed_hosts_is_set() -> None:
    beyond: dict[str, object] = {"host": "0.0.0.0", "api_key": "k"}
    assert server_options_of(settings_of(server=beyond)).access.hosts is None
    hosts = server_options_of(settings_of(server={**beyond, "allowed_hosts": ["box"]})).access.hosts
    assert hosts is not None
    assert "box" in hosts


def test_named_keys_and_the_single_key_are_both_accepted(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("alice sk-1", encoding="utf-8")
    made = server_options_of(settings_of(server={"api_key": "k", "api_keys_file": str(file)}))
    assert made.access.keys == {"api_key": "k", "alice": "sk-1"}
    assert "sk-1" not in repr(made)


@pytest.mark.parametrize(
    ("server", "owners", "operators"),
    [
        ({}, [], set()),
        ({"api_key": "k"}, [], {"api_key"}),
        ({"api_key": "k", "api_keys_file": "keys"}, ["alice"], {"api_key", "alice"}),
        ({"api_keys_file": "keys"}, ["alice"], {"alice"}),
        # a client whose key is named "api_key" is not the operator
        ({"api_key": "k", "api_keys_file": "sly"}, [], set()),
        ({"api_keys_file": "sly"}, [], set()),
    ],
)
def test_the_dashboard_accepts_the_server_key_and_the_keys_named_in_ui_owners(
    server: dict[str, object],
    owners: list[str],
    operators: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("keys").write_text("alice sk-1\nbob sk-2", encoding="utf-8")
    Path("sly").write_text("api_key sk-3", encoding="utf-8")
    made = server_options_of(settings_of(server=server, ui={"owners": owners, "read_only": True}))
    assert made.operators == operators
    assert made.has_read_only_ui


def test_a_dashboard_owner_without_a_key_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="'carol' has no key"):
        server_options_of(settings_of(server={"api_key": "k"}, ui={"owners": ["carol"]}))


@pytest.mark.parametrize("origin", ["*", "chat.example.com", "https://a.example/path", "https://*"])
def test_a_cors_origin_that_is_not_a_scheme_and_a_host_is_refused(origin: str) -> None:
    with pytest.raises(InvalidConfiguration, match="origin"):
        settings_of(server={"cors_origins": [origin]})


@pytest.mark.parametrize(("model", "budget"), [(None, "fast"), ("some.gguf", "backend")])
def test_context_budget_applies_only_if_temper_does_not_start_the_model(
    model: str | None, budget: BudgetMode
) -> None:
    made = server_options_of(settings_of(context={"budget": "fast"}, model={"path": model}))
    assert made.context.budget is budget


def test_guardrails_listed_in_the_setting_without_are_disabled() -> None:
    made = server_options_of(settings_of(guardrails={"without": ["rescue", "compaction"]}))
    assert made.policy.without == {"rescue", "compaction"}
    assert made.context.mode is FittingMode.OFF
    assert server_options_of(Settings()).context.mode is FittingMode.AUTO


STORE: dict[str, object] = {"url": "valkey://127.0.0.1"}


@pytest.mark.parametrize(
    ("sections", "restores"),
    [
        ({}, True),
        ({"context": {"reasoning": "off"}}, False),
        ({"server": {"workers": 2}}, False),
        ({"backend": {"replicas": 2}}, False),
        ({"state": STORE}, False),
        ({"state": STORE, "context": {"reasoning": "on"}}, True),
        ({"server": {"workers": 2}, "context": {"reasoning": "on"}}, True),
    ],
)
def test_reasoning_is_restored_by_a_single_process_or_if_context_reasoning_is_on(
    sections: dict[str, dict[str, object]], *, restores: bool
) -> None:
    assert server_options_of(settings_of(**sections)).restores_reasoning is restores
