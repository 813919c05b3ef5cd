"""The exact probability of every short text of a tiny target, and whether an engine keeps to it.

The target's vocabulary is so small that all texts can be worked out, in float64 and by another
library's model. So an engine is compared with numbers, not with a second sample, and a million
continuations show what twenty thousand do not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from vllm import SamplingParams, TokensPrompt

from tests.e2e.tiny import write_likely_head, write_target
from tests.ops.oracle import Sampling, target_distribution

VOCAB, LENGTH, NUM_DRAFTS = 12, 4, 3
PROMPT = [3, 7, 1, 10, 5]
SAMPLING = Sampling(temperature=0.8, top_p=0.95)
# Texts that are expected less often are counted together, so that counts are nearly normal.
LEAST_EXPECTED = 20.0
# All comparisons together call a right engine wrong once in a million runs.
LEAST_P = 1e-6
AT_ONCE = 20_000
ENGINE: dict[str, Any] = {
    "max_num_seqs": 512,
    "max_num_batched_tokens": 4096,
    "max_model_len": 64,
    "skip_tokenizer_init": True,
    "seed": int(os.environ.get("EXACT_LAW_SEED", "0")),
}


def num_continuations() -> int:
    """Return how many continuations are asked for: ``EXACT_LAW_CONTINUATIONS``, or two minutes'."""
    return int(os.environ.get("EXACT_LAW_CONTINUATIONS", "200000"))


def write_models(folder: Path) -> tuple[str, str]:
    """Write a target of twelve tokens and an EAGLE head for it, and return their folders."""
    target = write_target(folder / "target", VOCAB)
    return target, write_likely_head(folder / "eagle", target, scale=0.3, noise=0.15)


def probabilities(target: str) -> torch.Tensor:
    """Return the probability of each text of LENGTH tokens, float64 [VOCAB] * LENGTH.

    Raises:
        AssertionError: a token is so near the edge of top-p that float32 may decide otherwise.
    """
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float64).eval()
    texts = torch.cartesian_prod(*[torch.arange(VOCAB)] * (LENGTH - 1))
    prompts = torch.tensor(PROMPT).expand(len(texts), -1)
    with torch.inference_mode():
        logits = model(torch.cat([prompts, texts], dim=1)).logits[:, len(PROMPT) - 1 :]
    probs = torch.ones((), dtype=torch.float64)
    for place in range(LENGTH):
        # Of each text so far the first that begins with it; the model looks at nothing behind it.
        rows = logits[:: VOCAB ** (LENGTH - 1 - place), place]
        laws = [target_distribution(row, SAMPLING) for row in rows.tolist()]
        check_edges(rows)
        law = torch.tensor(laws, dtype=torch.float64).reshape(*[VOCAB] * (place + 1))
        probs = probs[..., None] * law
    return probs


def check_edges(
    rows: torch.Tensor,  # [num_rows, VOCAB]
) -> None:
    """Raise where the most likely tokens' sum is as good as top-p."""
    sums = (rows / SAMPLING.temperature).softmax(dim=-1).sort(descending=True).values.cumsum(dim=-1)
    assert (sums - SAMPLING.top_p).abs().min() > 1e-6


def count_texts(llm: Any, continuations: int) -> torch.Tensor:
    """Return how often an engine wrote each text, int64 [VOCAB] * LENGTH."""
    parameters = SamplingParams(
        temperature=SAMPLING.temperature,
        top_p=SAMPLING.top_p,
        max_tokens=LENGTH,
        ignore_eos=True,
        detokenize=False,
    )
    weights = VOCAB ** torch.arange(LENGTH - 1, -1, -1)
    counts = torch.zeros(VOCAB**LENGTH, dtype=torch.int64)
    for start in range(0, continuations, AT_ONCE):
        prompts = [TokensPrompt(prompt_token_ids=PROMPT)] * min(AT_ONCE, continuations - start)
        outputs = llm.generate(prompts, parameters, use_tqdm=False)
        texts = torch.tensor([list(output.outputs[0].token_ids) for output in outputs])
        counts += torch.bincount(texts @ weights, minlength=len(counts))
        print(f"{int(counts.sum())} continuations", file=sys.stderr, flush=True)
    return counts.reshape([VOCAB] * LENGTH)


def windows() -> Iterator[tuple[int, ...]]:
    """Yield the places of one to LENGTH tokens in a row: few cells show a bias that all share."""
    for start, end in combinations(range(LENGTH + 1), 2):
        yield tuple(range(start, end))


def compare(
    counts: torch.Tensor,  # [VOCAB] * LENGTH
    probs: torch.Tensor,  # [VOCAB] * LENGTH
) -> dict[tuple[int, ...], tuple[float, int, float]]:
    """Compare what was counted with what is expected.

    Returns:
        For each of :func:`windows` chi-square, its degrees of freedom, and how likely one as large
        is by chance.

    Raises:
        AssertionError: a text was written that the target never writes.
    """
    assert not (counts[probs == 0] > 0).any(), "an impossible text was written"
    found = {}
    for places in windows():
        others = [place for place in range(LENGTH) if place not in places]
        ours, expected = counts.double(), probs * counts.sum()
        if others:
            ours, expected = ours.sum(dim=others), expected.sum(dim=others)
        often = expected >= LEAST_EXPECTED
        cells = [torch.cat([each[often], each[~often].sum()[None]]) for each in (ours, expected)]
        kept = cells[1] > 0
        chi_square = ((cells[0] - cells[1])[kept] ** 2 / cells[1][kept]).sum()
        freedom = int(kept.sum()) - 1
        half = torch.tensor(freedom / 2, dtype=torch.float64)
        chance = torch.special.gammaincc(half, chi_square / 2)
        found[places] = (float(chi_square), freedom, float(chance))
    return found


def least_chance(found: dict[tuple[int, ...], tuple[float, int, float]]) -> float:
    """Return how likely the least likely of some comparisons is, by chance, among as many."""
    return min(1.0, len(found) * min(chance for _, _, chance in found.values()))


def report(found: dict[tuple[int, ...], tuple[float, int, float]]) -> str:
    """Return a line for each comparison."""
    return "\n".join(
        f"tokens {places[0] + 1}-{places[-1] + 1}: chi-square {chi_square:.1f} "
        f"of {freedom} degrees of freedom, p = {chance:.3g}"
        for places, (chi_square, freedom, chance) in found.items()
    )
