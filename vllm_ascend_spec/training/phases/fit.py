"""The fourth phase: the speculators library trains the head.

Several devices: by ``torchrun.py``, a process for each.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_ascend_spec.errors import AscendSpecError
from vllm_ascend_spec.training.methods import recipe_of
from vllm_ascend_spec.training.output import OPTION, Output
from vllm_ascend_spec.training.requirements import missing
from vllm_ascend_spec.training.settings import Settings

if TYPE_CHECKING:
    import torch
    from speculators.train.config.schema import TrainConfig

    from vllm_ascend_spec.training.library.trainer import PhaseTrainer

NAME = "fit"


def is_done(settings: Settings) -> bool:
    """Return whether the head is there."""
    return Output(settings.output).head.is_dir()


def run(settings: Settings, show: Callable[[str], None]) -> None:
    """Train the head, from the last checkpoint if there is one.

    Raises:
        AscendSpecError: what it needs is not installed, or cannot be trained with.
        KeyboardInterrupt: Ctrl-C ended it.
    """
    if is_done(settings):
        return
    if (line := missing()) is not None:
        raise AscendSpecError(line)
    output, first = Output(settings.output), int(os.environ.get("RANK", "0")) == 0
    show = show if first else _silent
    with _alone(output.folder / "fit.lock"):
        config, step = _prepare(settings, output)
    if step:
        show(f"fit: goes on after step {step:,}")
    _train(settings, output, config, step, show)
    if first:
        _publish(output, show)


def _prepare(settings: Settings, output: Output) -> tuple[TrainConfig, int]:
    """Write what the trainer reads, and mend what a killed one left.

    Returns:
        The library's configuration, and how many steps earlier starts did.
    """
    from vllm_ascend_spec.training.library import run_log

    run_log.log_to_file(output.trainer_log)

    from speculators.train.config.schema import TrainConfig

    from vllm_ascend_spec.training.library import backend, begin, checkpoints, dataset
    from vllm_ascend_spec.training.library.arguments import arguments
    from vllm_ascend_spec.training.library.patches import registry
    from vllm_ascend_spec.training.shards import ShardReader

    device = _device()
    registry.apply(device)
    reader = ShardReader(output.states)
    backend.register(output.states, (*settings.layers, max(reader.layout.layers)))
    count = dataset.write_dataset(output.dataset, reader)
    share = dataset.train_share(count, int(os.environ.get("WORLD_SIZE", "1")))
    longest = max(reader.lengths.values())
    words = arguments(
        settings, output, device, longest, share, begin.write_begin(settings, output.begin)
    )
    config = TrainConfig.resolve(words)
    if config.provenance.get("full_attention_indices") == "default" and not settings.begin_with:
        # The library's default is a window of 2048 tokens in every layer.
        config.draft.full_attention_indices = list(range(config.draft.num_layers or 1))
    state = checkpoints.mend(output.checkpoints)
    step = 0 if state is None else state["global_step"]
    run_log.cut_metrics(output.metrics, step)
    return config, step


def _train(
    settings: Settings, output: Output, config: TrainConfig, step: int, show: Callable[[str], None]
) -> None:
    import logging

    from speculators.train import cli
    from speculators.train import trainer as library

    from vllm_ascend_spec.patches.patching import Patches
    from vllm_ascend_spec.training.library.curves import draw_curves
    from vllm_ascend_spec.training.library.run_log import METRICS_LOGGER, MetricsLog
    from vllm_ascend_spec.training.library.trainer import PhaseTrainer, Plan

    def watch(trainer: PhaseTrainer) -> None:
        if trainer.rank == 0:
            log = MetricsLog(output.metrics, show, trainer.steps, step)
            logging.getLogger(METRICS_LOGGER).addHandler(log)
            if (why := trainer.left_out()) is not None:
                show(f"fit: {why}")

    def draw() -> None:
        if (why := draw_curves(output.metrics, output.curves)) is not None:
            show(f"fit: {why}")

    is_default = config.provenance.get("log_freq") == "default"
    plan = Plan(
        steps=settings.steps or recipe_of(settings.begin_with).steps,
        or_epoch=settings.steps is None and settings.begin_with is None,
        log_freq=None if is_default else config.flatten()["log_freq"],
        seed=settings.seed,
        checkpoint_seconds=settings.checkpoint_minutes * 60,
        watch=watch,
        measured=draw,
    )
    replaced = Patches()
    replaced.set(cli, "Trainer", partial(PhaseTrainer, plan))
    replaced.set(library, "tqdm", lambda batches, **_: batches)
    try:
        cli.main(config)
    finally:
        replaced.revert()
    if plan.interrupted:
        show("fit: interrupted; the same command goes on from the last checkpoint")
        raise KeyboardInterrupt


def _publish(output: Output, show: Callable[[str], None]) -> None:
    from vllm_ascend_spec.training.library.checkpoints import best_or_last
    from vllm_ascend_spec.training.library.head import write_head

    checkpoint = best_or_last(output.checkpoints)
    write_head(checkpoint, output.head, _dtype(output))
    show(f"fit: the head is in {output.head}")


def _dtype(output: Output) -> torch.dtype:
    """Return the dtype of the target's weights and states, which the head is served beside."""
    import torch

    from vllm_ascend_spec.training.shard_layout import read_layout

    found: torch.dtype = getattr(torch, read_layout(OPTION, output.states).dtype)
    return found


def _device() -> str:
    import torch

    found = torch.accelerator.current_accelerator()
    return "cpu" if found is None else found.type


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let one process after another do what is between."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _silent(line: str) -> None:
    """Show nothing: another process does."""
