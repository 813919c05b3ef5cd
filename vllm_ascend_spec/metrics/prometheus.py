"""Read a server's ``/metrics`` with the library that vLLM writes it with."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def read_samples(text: str, prefix: str) -> Iterator[Sample]:
    """Yield the samples whose names begin with ``prefix``, in the order of the text.

    Args:
        text: what the server answered, in Prometheus' text format.
        prefix: beginning of the names.

    Raises:
        ValueError: ``text`` is in another format.
    """
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(prefix):
                yield sample
