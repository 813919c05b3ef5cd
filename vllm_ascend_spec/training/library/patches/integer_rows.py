"""The trainer asks the datasets library for rows by NumPy's integers.

Why: the sampler (speculators/train/distributed_batch_sampler.py:
MultipackDistributedBatchSamplerV2) yields NumPy arrays, and datasets 5 takes an ``int64`` of NumPy
for no row number (``Wrong key type``).
How: the sampler yields lists of Python's integers.
Until: speculators converts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from speculators.train.distributed_batch_sampler import MultipackDistributedBatchSamplerV2

    def __iter__(self: Any) -> Iterator[list[int]]:  # noqa: N807
        return iter([list(map(int, batch)) for batch in self._generate_batches(self.epoch)])

    _patches.set(MultipackDistributedBatchSamplerV2, "__iter__", __iter__)
