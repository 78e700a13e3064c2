from tests.scaling.cluster import Ports


def test_without_a_cluster_no_port_is_reported_open() -> None:
    assert Ports().left_open() == []
