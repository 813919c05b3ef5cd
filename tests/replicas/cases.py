"""What is asked of two copies, and what has to come of it on every device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from tests.replicas.lockstep import Step, beside_idle, out_of_step, read_steps
from tests.replicas.models import write_eagle, write_mtp, zoo_eagle3, zoo_sparse_mtp
from tests.replicas.processes import Start, run_copies

# The method, and what writes the target and the draft.
PAIRS: dict[str, tuple[str, Callable[[Path], tuple[str, str]]]] = {
    "eagle": ("eagle", write_eagle),
    "eagle3": ("eagle3", zoo_eagle3),
    "mtp": ("mtp", write_mtp),
    "sparse-mtp": ("mtp", zoo_sparse_mtp),
}
DRAFTS = 3
END = 48
ARGUMENTS: dict[str, Any] = {
    "dtype": "float32",
    "skip_tokenizer_init": True,
    "max_model_len": END,
    "block_size": 128,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 256,
    "kv_cache_memory_bytes": 32 << 20,
    "data_parallel_size": 2,
    # Refused where it cannot be used.
    "additional_config": {"ascend_spec": {"draft_loop": "ours"}},
}
PROMPTS = [[1 + (first * place) % 7 for place in range(1, 8 + first)] for first in range(4)]


def asked(prompt: int, rank: int, max_tokens: int) -> dict[str, Any]:
    return {"prompt": PROMPTS[prompt], "rank": rank, "max_tokens": max_tokens}


# How long the short answer of the second batch is. Drafts of a trained head are accepted: the long
# answer comes to its end soon after it, too.
SHORT = {"sparse-mtp": 6}


def batches_of(name: str) -> list[list[dict[str, Any]]]:
    """Return the batches of requests of a pair.

    All at one copy; then a short one there while one at the other copy goes on to the end of the
    context, where nothing is drafted for its batch.
    """
    short = SHORT.get(name, 12)
    return [
        [asked(prompt, rank=0, max_tokens=12) for prompt in range(len(PROMPTS))],
        [asked(0, rank=0, max_tokens=short), asked(1, rank=1, max_tokens=END)],
    ]


@dataclass(frozen=True)
class Ran:
    """What came of it.

    Attributes:
        batches: of requests.
        answers: token ids, by batch and request.
        drafted: how many drafts were verified.
        length: of the drafts of a request in a step, on average.
        accepted: how many of them the target accepted.
        steps: of each copy.
    """

    batches: list[list[dict[str, Any]]]
    answers: list[list[list[int]]]
    drafted: float
    length: float
    accepted: float
    steps: list[list[Step]]


# One draft for each request of the copy that all are asked of, and three for one alone.
SCHEDULE = {"num_speculative_tokens_per_batch_size": [[1, 2, DRAFTS], [3, 4, 1]]}


def run_case(
    name: str,
    folder: Path,
    environment: Mapping[str, str],
    options: Mapping[str, Any] | None = None,
    start: Start = run_copies,
    **arguments: Any,
) -> tuple[str, Ran]:
    """Ask two replicas of a mixture; return its folder and what came of it.

    Args:
        name: a key of :data:`PAIRS`.
        folder: for the models and for what the copies write.
        environment: of the copies.
        options: further ones of ``speculative_config``.
        start: what runs the copies, as ``run_copies`` does.
        **arguments: further ones of the engine.
    """
    method, write = PAIRS[name]
    target, draft = write(folder)
    batches = batches_of(name)
    job = {
        "arguments": {**ARGUMENTS, "model": target, **arguments},
        "spec": {
            "method": method,
            "model": draft,
            "num_speculative_tokens": DRAFTS,
            **(options or {}),
        },
        "batches": batches,
        "folder": str(folder),
    }
    found = start(job, environment)
    drafts, drafted, accepted = (
        found["counters"][f"vllm:spec_decode_num_{what}"]
        for what in ("drafts", "draft_tokens", "accepted_tokens")
    )
    steps = [read_steps(folder, rank) for rank in range(2)]
    return target, Ran(batches, found["answers"], drafted, drafted / drafts, accepted, steps)


def assert_in_step(ran: Ran) -> None:
    """Compare what the copies exchanged in each step, whichever of them had work."""
    assert not out_of_step(*ran.steps)
    # One copy had work alone, then the other one, and then both.
    assert len(beside_idle(ran.steps[0], ran.steps[1])) > 4
    assert len(beside_idle(ran.steps[1], ran.steps[0])) > 4
    assert ran.drafted > ran.accepted > 0


@torch.inference_mode()
def wrong_answers(target: str, ran: Ran) -> dict[tuple[int, int], int]:
    """Return where an answer is not the target's most likely token in a plain forward pass.

    Returns:
        The first such place, by batch and request.
    """
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
    wrong = {}
    for i, (batch, answers) in enumerate(zip(ran.batches, ran.answers, strict=True)):
        for j, (request, answer) in enumerate(zip(batch, answers, strict=True)):
            prompt = request["prompt"]
            assert len(answer) == min(request["max_tokens"], END - len(prompt))
            logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
            differs = (logits.argmax(-1) != torch.tensor(answer)).nonzero()
            if len(differs):
                wrong[i, j] = int(differs[0])
    return wrong
