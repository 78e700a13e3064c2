import socket
from contextlib import closing

import pytest

from benchmarks.load.processes import free_port
from proxy.errors import LaunchFailed
from temper_evals.demo.demonstration import check_libraries, listen_somewhere


def test_check_libraries_accepts_installed_libraries() -> None:
    check_libraries(["click", "httpx"])


def test_the_error_for_missing_libraries_names_all_and_says_what_to_install() -> None:
    with pytest.raises(LaunchFailed) as caught:
        check_libraries(["click", "no_such_library", "nor_this_one"])
    assert "without no_such_library, nor_this_one:" in str(caught.value)
    assert "pip install '.[embedded]'" in str(caught.value)


def test_a_free_port_is_used_if_the_requested_port_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with closing(listen_somewhere(port)) as listening:
            assert listening.getsockname()[0] == "127.0.0.1"
            assert listening.getsockname()[1] not in (0, port)


def test_a_requested_port_that_is_free_is_used() -> None:
    port = free_port()
    with closing(listen_somewhere(port)) as listening:
        assert listening.getsockname()[1] == port
