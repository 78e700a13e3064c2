"""The `/metrics` exposition, parsed as Prometheus parses it."""

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Exposition:
    """All metric families of one response."""

    families: Mapping[str, Metric]

    @classmethod
    def read(cls, text: str, *, is_openmetrics: bool = False) -> "Exposition":
        """Parse a response; raises ValueError where Prometheus would reject it."""
        parse = openmetrics_families if is_openmetrics else text_string_to_metric_families
        return cls({family.name: family for family in parse(text)})

    def value(self, name: str, **labels: str) -> float:
        """Add up the samples of a metric that have these labels."""
        return sum(
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )
