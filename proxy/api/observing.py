"""From the settings to whoever wants to know what happens to requests."""

from proxy.observability.metrics import Metrics
from proxy.observability.observers import Observers
from proxy.settings import Settings


def observers_of(settings: Settings) -> Observers:
    """Make the observers that are configured."""
    return Observers(meter=Metrics() if settings.metrics.enabled else None)
