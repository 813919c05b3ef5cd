"""Measure the peak memory of a call, not counting its inputs and outputs."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

# The C++ backend allocates outside PyTorch, where this module sees nothing: per thread some buffers
# and a few words for each chunk of a row (ops/cpu/distribution.h), less than this for so many
# tokens of the vocabulary.
NATIVE_SCRATCH = 64 * 2**10
NATIVE_TOKENS = 200_000


def peak_bytes(call: Callable[[], Any], device: torch.device) -> int:
    """Return PyTorch's peak allocation during ``call``, minus the size of its result."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        result = call()
        torch.cuda.synchronize(device)
        peak = torch.cuda.max_memory_allocated(device) - before
    else:
        peak, result = _profile(call)
    return max(peak - _bytes_of(result), 0)


def _profile(call: Callable[[], Any]) -> tuple[int, Any]:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = call()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    return running_peak(event for event in events if event["name"] == "[memory]"), result


def running_peak(events: Iterable[Mapping[str, Any]]) -> int:
    """Return the peak of the running sum of a trace's allocations (positive) and releases."""
    held = peak = 0
    for event in sorted(events, key=lambda event: event["ts"]):
        held += event["args"]["Bytes"]
        peak = max(peak, held)
    return peak


def _bytes_of(result: Any) -> int:
    tensors = result if isinstance(result, tuple) else (result,)
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, torch.Tensor))


def memory_record(peak: int, rows: int, vocab: int, backend: str) -> dict[str, Any]:
    """Return the figure for a JSON record.

    ``vocab_sized`` tells whether the peak is at least ``rows`` × ``vocab`` bytes, so that something
    as large as the probabilities was stored.
    """
    record: dict[str, Any] = {"peak_bytes": peak, "vocab_sized": peak >= rows * vocab}
    if backend == "cpu":
        record["outside_pytorch_bytes_per_thread_at_most"] = NATIVE_SCRATCH * math.ceil(
            vocab / NATIVE_TOKENS
        )
    return record
