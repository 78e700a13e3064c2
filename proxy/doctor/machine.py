"""Checks of the machine that Temper runs on: what it has left, and who can reach it."""

import resource

from proxy.doctor.finding import Finding, doubtful, fine
from proxy.hardware.fit import Memory
from proxy.hardware.snapshot import snapshot
from proxy.hardware.summary import amount
from proxy.settings import Settings, is_loopback

_STREAM_DESCRIPTORS = 2  # the client's socket and the backend's
_OWN_DESCRIPTORS = 64
_LEAST_MEMORY = 1 << 30


def descriptors(settings: Settings) -> Finding:
    """Compare the limit for open files with the streams that may be open at once."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _OWN_DESCRIPTORS + _STREAM_DESCRIPTORS * settings.server.max_waiting
    return judge_descriptors(limit, needed)


def judge_descriptors(limit: int, needed: int) -> Finding:
    """Return whether so many open files are enough; a negative limit is none."""
    if limit < 0 or limit >= needed:
        return fine(f"{'any number of' if limit < 0 else limit} open files are allowed")
    return doubtful(
        f"only {limit} open files are allowed, and full queues need {needed}",
        f"ulimit -n {needed}, or lower server.max_waiting",
    )


def memory(_: Settings) -> Finding:
    """Measure what is left for models."""
    return judge_memory(snapshot())


def judge_memory(found: Memory) -> Finding:
    """Return whether anything is left; a device that a model fills is as it should be."""
    parts = [f"{amount(found.free)} of {amount(found.total)} of main memory"]
    parts += [f"{amount(one.free)} of {amount(one.total)} of {one.name}" for one in found.devices]
    told = f"{' and '.join(parts)} {'is' if len(parts) == 1 else 'are'} free"
    if found.free < _LEAST_MEMORY:
        return doubtful(told, "end other programs, or use a smaller model or window")
    return fine(told)


def reachability(settings: Settings) -> Finding:
    """Tell who can reach Temper; without a key beyond loopback the settings are refused."""
    host = settings.server.host
    if is_loopback(host):
        return fine(f"Temper listens on {host}, for this machine alone")
    return fine(f"Temper listens on {host} and wants its key")
