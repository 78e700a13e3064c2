"""Addresses of loopback that no other server has.

A port that one test gives back may be the next test's. Who still asks for what had ended there,
and tests make many a client do that, must not meet the successor, which may count what it gets.
"""

import secrets
import socket
import sys


def own_address() -> str:
    """Return an address of this machine that is ours alone, where systems have several (Linux)."""
    if sys.platform != "linux":
        return "127.0.0.1"
    return ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))])


def has_ipv6() -> bool:
    """Tell whether this machine has the address ::1; containers often have none."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True
