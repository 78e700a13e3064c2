"""Loopback addresses that no other server uses.

A test may get the port of a server of an earlier test. Late requests to the earlier server must not
reach the new server, which may count its requests.
"""

import secrets
import socket
import sys


def own_address() -> str:
    """Return a loopback address that only this test uses; 127.0.0.1 except on Linux."""
    if sys.platform != "linux":
        return "127.0.0.1"
    return ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))])


def has_ipv6() -> bool:
    """Return whether this machine has the address ::1; many containers do not."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True
