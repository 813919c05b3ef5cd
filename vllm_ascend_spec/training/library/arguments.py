"""The command line of ``speculators train`` for what was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vllm_ascend_spec.training.methods import METHODS
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.settings import Settings

# The name of ``backend.py`` for the library.
BACKEND = "vllm-ascend-spec"
# Tokens of a batch, where the longest sample is not longer: the library's own number, and what a
# CPU can do with the masks of plain attention, which are of that length squared.
BATCH_TOKENS, CPU_BATCH_TOKENS = 8192, 512


def arguments(
    settings: Settings,
    output: Output,
    device: str,
    longest: int,
    train_share: float,
    begin: Path | None = None,
) -> list[str]:
    """Return the words; how many steps there are, the trainer finds when it has the samples.

    Args:
        settings: what was asked for.
        output: where everything is.
        device: PyTorch's name of the device.
        longest: tokens of the longest sample.
        train_share: share of the samples that are trained on; the last ones are watched.
        begin: the head to go on from, in the library's form.
    """
    words = {
        "speculator-type": settings.method,
        "verifier-name-or-path": str(settings.model.resolve()),
        "data-path": str(output.dataset),
        "hidden-states-backend": BACKEND,
        "on-missing": "raise",
        "train-data-ratio": repr(train_share),
        "total-seq-len": max(longest, CPU_BATCH_TOKENS if device == "cpu" else BATCH_TOKENS),
        "save-path": str(output.checkpoints),
        "log-dir": str(output.folder / "logs"),
        "lr": repr(settings.learning_rate),
        "scheduler-warmup-ratio": 0.05,
        "seed": settings.seed,
    }
    return [
        *_options(words),
        *_of_device(device),
        *_of_head(settings, output, begin),
        *settings.library,
    ]


def _of_device(device: str) -> Iterator[str]:
    if device == "cpu":
        # Loading is a read from a mapped file; a process for it costs more.
        yield from ("--num-workers", "0", "--hidden-states-dtype", "float32")
        # More blocks than a batch has answers' tokens are computed for nothing.
        yield from ("--max-anchors", str(CPU_BATCH_TOKENS // 2))
    if device != "cuda" or find_spec("triton") is None:
        yield from ("--draft-attn-impl", "sdpa", "--loss-implementation", "eager")


def _of_head(settings: Settings, output: Output, begin: Path | None) -> Iterator[str]:
    yield from METHODS[settings.method].arguments(settings.num_speculative_tokens)
    if output.vocabulary.is_dir():
        yield from ("--d2t-path", str(output.vocabulary / "d2t.npy"))
        yield from ("--t2d-path", str(output.vocabulary / "t2d.npy"))
    if begin is not None:
        yield from ("--from-pretrained", str(begin))
        return
    yield from ("--target-layer-ids", *map(str, settings.layers))


def _options(values: dict[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        yield from (f"--{name}", str(value))
