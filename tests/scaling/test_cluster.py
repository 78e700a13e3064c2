from tests.scaling.cluster import Ports


def test_a_port_without_a_listener_is_not_open() -> None:
    assert Ports().left_open() == []
