"""What this process is called among others that do the same, in log lines and in traces."""

import os
import socket

_POD = "POD_NAME"  # by the downward API
_IN_KUBERNETES = "KUBERNETES_SERVICE_HOST"


def replica_name() -> str:
    """Return the name of the pod, else the machine's name and the number of the process."""
    host = socket.gethostname()
    if pod := os.environ.get(_POD, ""):
        return pod
    return host if os.environ.get(_IN_KUBERNETES) else f"{host}:{os.getpid()}"
