"""The library's trainer, as a phase runs it: killed at any time, it goes on to the same result.

The library's own saves weights and optimizer in bfloat16 and no random state, at the end of every
epoch, into the folder that it reads again; it measures at the end of every epoch, and goes on after
the last step with an epoch of one step each. Here

- a checkpoint holds float32, and what a step draws depends on seed, step and process alone, so a
  second start computes what the first one would have;
- it is measured and saved after every tenth of the steps, wherever in an epoch that is, and saved
  in between by the clock;
- Ctrl-C saves nothing, as it may have come in the middle of a step: the last checkpoint counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from speculators.train.trainer import Trainer

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.library.checkpoints import write_checkpoint
from vllm_ascend_spec.training.library.patches.cpu_trainer import CpuTrainer
from vllm_ascend_spec.training.library.patches.registry import override

MEASURED = 10
# Lines of progress in all.
LOG_LINES = 20
# Processes agree on the clock after so many steps.
AGREE_STEPS = 20


@dataclass
class Plan:
    """What the trainer does beside training.

    Attributes:
        steps: of the optimizer in all.
        or_epoch: take the steps of an epoch if they are more.
        log_freq: steps from a line of progress to the next, or None for some lines in all.
        seed: of what steps draw.
        checkpoint_seconds: a checkpoint is written after so long.
        watch: is given the trainer when it begins, such as to watch its log.
        measured: is called after each measurement.
        interrupted: whether Ctrl-C or a signal ended it.
    """

    steps: int
    or_epoch: bool
    log_freq: int | None
    seed: int
    checkpoint_seconds: float
    watch: Callable[[PhaseTrainer], object]
    measured: Callable[[], object]
    interrupted: bool = False


class PhaseTrainer(override(CpuTrainer), Trainer):  # type: ignore[misc]
    """The trainer.

    Args:
        plan: what it does beside training.
        args: the library's.

    Attributes:
        steps: of the optimizer in all.
        epoch_steps: those of the first epoch.
    """

    config: Any

    def __init__(self, plan: Plan, *args: Any) -> None:
        self.plan = plan
        self._saved = time.monotonic()
        super().__init__(*args)
        plan.watch(self)

    def setup_trainer(self) -> None:
        """Find how many steps there are, and where an earlier start ended."""
        super().setup_trainer()
        self.epoch_steps = len(self.train_loader)
        self.steps = max(self.plan.steps, self.epoch_steps if self.plan.or_epoch else 0)
        begun = self.checkpointer.previous_epoch != -1
        state = self._load_training_state() if begun else {}
        self.global_step = state.get("global_step", 0)
        self._resume_local_step = state.get("local_step", 0)
        self._best_step = state.get("best_step")
        self.best_val_loss = state.get("best_loss", math.inf)
        epochs = self._count_epochs()
        self.current_epoch = state.get("epoch", 0) if self.global_step < self.steps else epochs
        self.config = self.config._replace(
            num_epochs=epochs,
            max_steps=self.steps,
            log_freq=self.plan.log_freq or max(1, self.steps // LOG_LINES),
        )

    def setup_model(self) -> None:
        """Let each step draw by its number."""
        super().setup_model()
        self.model.register_forward_pre_hook(lambda *_: self._seed_step())

    def train_epoch(self, epoch: int, *, step_callback: Callable[[], None] | None = None) -> None:
        """Train for an epoch; measure after a tenth of all steps, and save by the clock."""
        begin = self.global_step - (self._resume_local_step if epoch == self.current_epoch else 0)

        def after_step() -> None:
            if step_callback is not None:
                step_callback()
            if self._is_time_to_measure():
                self._measure(epoch, self.global_step - begin)
            elif self._clock_says_save():
                self._save(epoch, self.global_step - begin)

        super().train_epoch(epoch, step_callback=after_step)

    def val_epoch(self, epoch: int) -> None:
        """Measure nothing at the end of an epoch: see the module."""

    def left_out(self) -> str | None:
        """Return what to say if not all samples are trained on, or None."""
        if self.steps >= self.epoch_steps:
            return None
        sampler: Any = self.train_loader.batch_sampler
        tokens = int(sampler.lengths.sum())
        return (
            f"about {tokens * self.steps // self.epoch_steps:,} of {tokens:,} tokens of states are "
            f"trained on; --steps {self.epoch_steps} trains on all"
        )

    def _is_time_to_measure(self) -> bool:
        now, before = self.global_step * MEASURED, (self.global_step - 1) * MEASURED
        return now // self.steps > before // self.steps

    def _measure(self, epoch: int, local_step: int) -> None:
        """Measure, save, and remember it if it is the best."""
        # The samples that are watched are batched by the epoch, here always alike.
        found = super().val_epoch(0)
        self.model.train()
        loss = found["loss_epoch"]
        if not math.isfinite(loss):
            problem = f"the loss is {loss} after step {self.global_step}; valid: a lower rate"
            raise ConfigError("--learning-rate", self.config.lr, problem)
        if loss < self.best_val_loss:
            self.best_val_loss, self._best_step = loss, self.global_step
        self._save(epoch, local_step, found)
        if self.rank == 0:
            self.plan.measured()

    def maybe_save_checkpoint(self, epoch: int | str, local_step: int = 0) -> None:
        """Save nothing: see the module."""
        if epoch == "interrupted":
            self.plan.interrupted = True

    def _save(self, epoch: int, local_step: int, measured: dict[str, float] | None = None) -> None:
        state = {
            "epoch": epoch,
            "local_step": local_step,
            "global_step": self.global_step,
            "best_step": self._best_step,
            "best_loss": self.best_val_loss,
        }
        if self.rank == 0:
            write_checkpoint(
                self.checkpointer.path, lambda name: self._write(name, measured), state
            )
        else:
            # Writing is done together by processes that hold parts of the weights each.
            self._write(f"{self.global_step}", measured)
        self._saved = time.monotonic()
        if self.is_distributed:
            dist.barrier()

    def _write(self, name: str, measured: dict[str, float] | None) -> None:
        self.checkpointer.save_checkpoint(
            self.model, self.optimizers, name, float_dtype=torch.float32
        )
        if self.schedulers:
            self.checkpointer.save_scheduler_state_dict(self.schedulers, name)
        if measured is not None:
            self.checkpointer.save_val_metrics(name, measured)

    def _seed_step(self) -> None:
        count = dist.get_world_size() if self.is_distributed else 1
        torch.manual_seed(self.plan.seed + self.global_step * count + self.rank)

    def _clock_says_save(self) -> bool:
        due = time.monotonic() - self._saved >= self.plan.checkpoint_seconds
        if not self.is_distributed:
            return due
        if self.global_step % AGREE_STEPS:
            return False
        said = torch.tensor(float(due), device=self.local_rank)
        dist.broadcast(said, src=0)
        return bool(said.item())

    def _count_epochs(self) -> int:
        """Return how many epochs have the steps that were asked for."""
        sampler: Any = self.train_loader.batch_sampler
        steps = epochs = 0
        while steps < self.steps:
            sampler.set_epoch(epochs)
            steps += len(sampler)
            epochs += 1
        sampler.set_epoch(0)
        return epochs
