"""Copies from the host to a device that wait for nothing that runs there.

PyTorch keeps pinned memory until such a copy is done, so nobody has to hold the source.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def send(
    host: torch.Tensor,  # any shape
    device: torch.device,
) -> torch.Tensor:
    """Return a tensor of the host on a device; itself if that is the CPU."""
    return host if device.type == "cpu" else host.pin_memory().to(device, non_blocking=True)


def send_list(
    values: Sequence[int] | Sequence[float], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Return values on a device, [len(values)]."""
    return send(torch.tensor(values, dtype=dtype), device)
