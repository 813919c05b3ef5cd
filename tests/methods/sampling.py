"""What drafts are sampled by: the requests' parameters, and noise for those with a seed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from vllm_ascend_spec.ops.row_noise import RowNoise


def make_sampling(
    temperature: list[float], top_k: list[int] | None = None, top_p: list[float] | None = None
) -> Any:
    """Return the part of vLLM's sampling metadata that drafting reads."""
    return SimpleNamespace(
        temperature=torch.tensor(temperature),
        top_k=None if top_k is None else torch.tensor(top_k),
        top_p=None if top_p is None else torch.tensor(top_p),
        generators={},
        all_greedy=not any(temperature),
    )


def make_noise(
    seeds: list[int], positions: list[int], unseeded: list[bool] | None = None
) -> RowNoise:
    """Return what the runner hands over for the first drafts of a step."""
    return RowNoise(
        torch.tensor(seeds),
        torch.tensor(positions),
        None if unseeded is None else torch.tensor(unseeded),
    )
