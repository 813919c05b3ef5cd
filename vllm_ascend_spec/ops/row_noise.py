"""What gives the rows of a batch their noise: the requests' seeds and the lengths of their texts.

See :mod:`vllm_ascend_spec.ops.verify_seeded`. The noise of a token belongs to the request's seed
and the token's position in the text, and to nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class RowNoise(NamedTuple):
    """Seeds and positions of the requests of a batch.

    Attributes:
        seeds: int64 [num_reqs]; of no meaning for requests without a seed.
        positions: int64 [num_reqs], position in the text of the next token that each request gets.
        unseeded: bool [num_reqs], the requests that sample without a seed; None if there are none.
    """

    seeds: torch.Tensor
    positions: torch.Tensor
    unseeded: torch.Tensor | None

    def after(
        self,
        counts: torch.Tensor | int,  # [num_reqs]
    ) -> RowNoise:
        """Return the noise of the tokens that follow the next ``counts`` ones."""
        return self._replace(positions=self.positions + counts)

    def temperature_of_seeded(
        self,
        temperature: torch.Tensor,  # [num_reqs]
    ) -> torch.Tensor:
        """Return the temperatures with 0, which is greedy, for requests without a seed."""
        return temperature if self.unseeded is None else temperature.masked_fill(self.unseeded, 0.0)

    def temperature_of_unseeded(
        self,
        temperature: torch.Tensor,  # [num_reqs]
    ) -> torch.Tensor:
        """Return the temperatures with 0, which is greedy, for requests with a seed."""
        assert self.unseeded is not None
        return temperature.where(self.unseeded, 0.0)
