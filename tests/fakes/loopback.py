"""Loopback addresses that no other server uses.

A port that one test releases may be the next test's. Requests that are still sent to the first
server must not reach its successor, which may count its requests.
"""

import secrets
import socket
import sys


def own_address() -> str:
    """Return a loopback address for this test alone where the system has several (Linux)."""
    if sys.platform != "linux":
        return "127.0.0.1"
    return ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))])


def has_ipv6() -> bool:
    """Report whether this machine has the address ::1; containers often have none."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True
