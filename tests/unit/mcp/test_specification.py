from proxy.mcp.specification import ServerSpec


def test_a_server_shows_none_of_its_secrets() -> None:
    spec = ServerSpec("a", "http://h", {"x": "canary"}, ("x", "canary"), {"KEY": "canary"})
    assert "canary" not in repr(spec)


def test_an_address_is_reached_by_tcp_and_a_program_by_a_pipe() -> None:
    assert ServerSpec("a", "http://h").transport == "tcp"
    assert ServerSpec("a", command=("x",)).transport == "pipe"
