"""A step's tokens on the host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from vllm_ascend_spec.worker.host_tokens import tokens_on_host

RUNNER: Any = SimpleNamespace(
    discard_request_mask=SimpleNamespace(np=np.array([False, True, False, True]))
)


def test_padding_and_discarded_tokens_are_left_out() -> None:
    """Entries of the mask behind the batch are of earlier steps."""
    sampled = torch.tensor([[5, 6, -1], [7, -1, -1], [0, 9, 8]], dtype=torch.int32)
    assert tokens_on_host(sampled, RUNNER) == [[5, 6], [], [0, 9, 8]]


def test_lists_are_what_the_runner_made_of_them() -> None:
    sampled = [[5], [], [6, 7]]
    assert tokens_on_host(sampled, RUNNER) is sampled
