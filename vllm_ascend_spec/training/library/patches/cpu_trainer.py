"""The trainer takes "cuda" and device 0 where there is no accelerator.

Why: speculators/train/trainer.py:Trainer moves model and batches to the number of its process,
which PyTorch takes for an accelerator's, and computes under autocast of "cuda".
How: a base of our trainer says ``cpu`` before the first use.
Until: speculators asks what there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from speculators.train.trainer import Trainer as Stock
else:
    Stock = object


class CpuTrainer(Stock):
    """Base of the trainer, before the library's."""

    def setup_trainer(self) -> None:
        """Say on which device, the first thing that the library's constructor calls."""
        if torch.accelerator.current_accelerator() is None:
            cpu: Any = torch.device("cpu")
            self.local_rank, self.device_type = cpu, "cpu"
        super().setup_trainer()
