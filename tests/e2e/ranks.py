"""What each process of a split target drew, step by step: every one samples for itself.

vLLM hands out what the first process sampled. The others keep their own tokens for the next step,
so were one to draw another number, it would go on with another text and spoil the first one's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import torch


def digest(tensor: torch.Tensor | None) -> str:
    """Return a short text that is another one where a single bit is."""
    if tensor is None:
        return "none"
    tensor = tensor.detach().contiguous().cpu()
    return sha256(tensor.view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def start_noting(worker: Any) -> None:
    """Note from now on what a worker draws; run in its process."""
    runner, notes = worker.model_runner, []
    sample, draft = runner._sample, runner.draft

    def noting_sample(logits: torch.Tensor, metadata: Any) -> Any:
        # Before it: the sampler works on the logits in place.
        step = {"logits": digest(logits)}
        output = sample(logits, metadata)
        step |= {
            "verified": metadata is not None,
            "tokens": output.sampled_token_ids.tolist(),
            "generator": digest(torch.random.get_rng_state()),
        }
        notes.append(step)
        return output

    def noting_draft(step: Any) -> Any:
        drafts = draft(step)
        tokens = drafts.tolist() if isinstance(drafts, torch.Tensor) else drafts
        notes[-1] |= {"drafts": tokens, "their laws": digest(runner._draft_probs)}
        return drafts

    runner._sample, runner.draft, runner.notes = noting_sample, noting_draft, notes


def stop_noting(worker: Any) -> list[dict[str, Any]]:
    """Return what was noted; run in a worker's process."""
    runner = worker.model_runner
    del runner._sample, runner.draft
    return runner.__dict__.pop("notes")


@contextmanager
def noting(llm: Any) -> Iterator[list[list[dict[str, Any]]]]:
    """Yield a list that is filled, at the end, with the steps of each process."""
    steps: list[list[dict[str, Any]]] = []
    llm.collective_rpc(start_noting)
    yield steps
    steps += llm.collective_rpc(stop_noting)


def skip_a_number(worker: Any) -> None:
    """Let the last process, alone, draw a number for nothing."""
    if worker.rank == worker.parallel_config.world_size - 1:
        torch.rand(1)


def differences(steps: list[list[dict[str, Any]]]) -> list[str]:
    """Return what processes drew differently, each with the number of the step."""
    first, *others = steps
    assert all(len(other) == len(first) for other in others)
    return [
        f"step {number}: {name}"
        for other in others
        for number, (mine, theirs) in enumerate(zip(first, other, strict=True))
        for name in mine
        if mine[name] != theirs[name]
    ]
