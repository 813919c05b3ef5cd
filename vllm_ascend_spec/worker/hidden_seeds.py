"""Seeds for requests that have none."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm.config import VllmConfig

# Attribute of vLLM's CachedRequestState, which lasts as long as the request.
ATTRIBUTE = "ascend_spec_hidden_seed"
# What vLLM puts at random behind a request's id, from 0.30 on.
SUFFIX = re.compile(r"-[0-9a-f]{8}$")


class HiddenSeeds:
    """Gives each request a seed of its own, without a word from the device.

    All tensor-parallel ranks give the same, as they see the same requests in the same order. A
    script gives the same in every run. Servers differ by the random ids of their requests, and
    data-parallel replicas by their rank, too.

    Args:
        vllm_config: configuration of the engine.
    """

    def __init__(self, vllm_config: VllmConfig) -> None:
        rank = vllm_config.parallel_config.data_parallel_rank
        self._engine = f"{vllm_config.model_config.seed}/{rank}"
        self._count = 0

    def of(self, req_id: str, state: Any) -> int:
        """Return the seed of a request, from 0 to 2^63 - 1.

        Args:
            req_id: the request's id in vLLM's runner.
            state: vLLM's state of the request, which keeps the seed.
        """
        seed: int | None = getattr(state, ATTRIBUTE, None)
        if seed is None:
            self._count += 1
            text = f"{self._engine}/{self._count}/{SUFFIX.sub('', req_id)}"
            digest = blake2b(text.encode(), digest_size=8).digest()
            seed = int.from_bytes(digest, "little") >> 1
            setattr(state, ATTRIBUTE, seed)
        return seed
