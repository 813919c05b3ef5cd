"""Prompts: of held-out files for the demo, tests and benchmarks, of the others for training."""

from __future__ import annotations

import json
import random
from pathlib import Path

from . import corpus

NUM_PROMPTS = 64
PROMPT_CHARS = 320
MIN_FILE_CHARS = 3000
# Where in a file a prompt may start; beginnings are mostly licence texts and imports.
STARTS = (0.15, 0.45, 0.75)
# Those for training: their file in the folder of the token streams, how many, and where they start.
FOR_TRAINING = "prompts.jsonl"
NUM_TRAINING_PROMPTS = 3200
TRAINING_STARTS = tuple(tenth / 10 for tenth in range(1, 10))


def cut(text: str, start: float, chars: int = PROMPT_CHARS) -> str:
    """Return about ``chars`` characters of ``text``, whole lines but for the last."""
    begin = text.index("\n", int(len(text) * start)) + 1
    return text[begin : begin + chars].rstrip()


def write(work: Path, out: Path) -> None:
    """Write ``prompts.json``: one prompt a file in turn, so that no file dominates."""
    texts = list(json.loads((work / "held.json").read_text()).values())
    texts = [text for text in texts if len(text) >= MIN_FILE_CHARS]
    prompts = [cut(text, start) for start in STARTS for text in texts][:NUM_PROMPTS]
    out.mkdir(parents=True, exist_ok=True)
    (out / "prompts.json").write_text(json.dumps(prompts, indent=1) + "\n")
    print(f"prompts: {len(prompts)} from {len(texts)} held-out files", flush=True)


def write_for_training(stdlib: Path, work: Path) -> None:
    """Write those of :func:`for_training`, as ``vllm-ascend-spec train`` reads them."""
    lines = [json.dumps({"prompt": text}) + "\n" for text in for_training(stdlib)]
    (work / FOR_TRAINING).write_text("".join(lines))


def for_training(stdlib: Path) -> list[str]:
    """Return prompts like those of :func:`write`, of the files that the zoo was trained on.

    Args:
        stdlib: CPython's ``Lib``.
    """
    texts = [text for _, text in corpus.read_split(stdlib)["train"] if len(text) >= MIN_FILE_CHARS]
    prompts = [cut(text, start) for start in TRAINING_STARTS for text in texts]
    random.Random(0).shuffle(prompts)
    return prompts[:NUM_TRAINING_PROMPTS]
