"""Heads that ``vllm-ascend-spec train`` makes for the target, from prompts of the corpus."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from vllm_ascend_spec.training.output import Output

from . import prompts
from .shapes import AUX_LAYERS

COMMON = (
    *("--max-model-len", "512", "--dtype", "float32", "--enforce-eager"),
    *("--max-num-seqs", "64", "--kv-cache-memory-bytes", str(512 << 20)),
    *("--holdout", "64", "--max-tokens", "160", "--temperature", "0.6", "--learning-rate", "3e-3"),
    *("--layers", ",".join(map(str, AUX_LAYERS))),
)


@dataclass(frozen=True)
class Recipe:
    """What the command is asked for, beside what all heads have in common.

    Attributes:
        method: of the head.
        steps: of the optimizer.
        options: further ones of the command.
        library: those of ``speculators train``.
    """

    method: str
    steps: int
    options: tuple[str, ...] = ()
    library: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """Return the options of the command line."""
        of_method = ("--method", self.method, "--steps", str(self.steps))
        passed_on = ("--", *self.library) if self.library else ()
        return [*COMMON, *of_method, *self.options, *passed_on]


def run(work: Path, out: Path, recipe: Recipe) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Run the command; return the head's weights and the record of the training.

    Args:
        work: folder of the prompts; what the command writes stays there, and the next head of this
            target takes answers and states from it.
        out: folder of the target.
        recipe: of the head.
    """
    output, started = Output(work / f"heads-{out.resolve().name}"), time.time()
    words = ["train", str(out / "target"), "--prompts", str(work / prompts.FOR_TRAINING)]
    words += ["--output", str(output.folder), *recipe.words()]
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "-m", "vllm_ascend_spec.cli.main", *words]
    subprocess.run(command, env={**os.environ, **threads}, check=True)
    head = load_file(output.head / "model.safetensors")
    record = {
        "recipe": vars(recipe),
        "seconds": round(time.time() - started),
        "torch": torch.__version__,
        **figures(output.metrics),
    }
    # The command trains no other head over one that is there.
    shutil.rmtree(output.head)
    return head, record


def figures(metrics: Path) -> dict[str, Any]:
    """Return loss and share of right drafts: their curve, and of answers not trained on."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    curve = [[line["step"], *of_step(line["train"]).values()] for line in lines if "train" in line]
    watched = [of_step(line["watched"]) for line in lines if "watched" in line]
    return {"curve": curve, "held_out": watched[-1]}


def of_step(found: dict[str, float]) -> dict[str, float]:
    """Return loss and share of right drafts at each position, as other stages name them."""
    places = [name for name in found if name.startswith("position_")]
    named = {"loss": found["loss"]}
    named |= {f"agreement_{i}": found[name] for i, name in enumerate(places, 1)}
    return {name: round(value, 4) for name, value in named.items()}
