import os
import socket

import pytest

from proxy.observability.replica import replica_name


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_NAME", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def test_a_process_is_called_by_its_machine_and_its_number() -> None:
    assert replica_name() == f"{socket.gethostname()}:{os.getpid()}"


def test_a_machine_in_kubernetes_is_called_as_its_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert replica_name() == socket.gethostname()


def test_the_name_of_a_pod_counts_where_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("POD_NAME", "temper-7d9f-x2k")
    assert replica_name() == "temper-7d9f-x2k"
