"""The engines: every method, eagerly and in graphs."""

from __future__ import annotations

from typing import Any

from tests.ascend.matrix import END, EXACT, MODES, Case
from tests.zoo import SPECS

# As vLLM has it on a GPU, where tests/ascend says otherwise; a draft's graphs are in DEFAULT.
# A small share of the GPU each, so that engines of several processes fit beside each other.
ENGINE: dict[str, Any] = {"async_scheduling": None, "gpu_memory_utilization": 0.05}
EAGER, FULL, DEFAULT = "eager", "full_decode_only", "default"
assert set(MODES) == {EAGER, FULL, DEFAULT}

CASES = {
    f"{method}-{mode}": Case(
        method=method,
        mode=mode,
        engine=ENGINE,
        requests=(*EXACT, "seeded") if mode == DEFAULT else ("greedy", "penalties", "seeded"),
    )
    for method in SPECS
    for mode in MODES
}
CASES["eagle-sync"] = Case(
    method="eagle", mode=DEFAULT, engine={"async_scheduling": False}, requests=("greedy", "seeded")
)
# Requests are thrown out and start again; prompts in pieces; the end of the context.
CASES["eagle-preemption"] = Case(
    method="eagle",
    mode=DEFAULT,
    engine={**ENGINE, "num_gpu_blocks_override": 48, "enable_prefix_caching": False},
)
CASES["eagle-chunked"] = Case(
    method="eagle",
    mode=DEFAULT,
    engine={**ENGINE, "max_num_batched_tokens": 48, "max_num_seqs": 4},
    requests=("greedy", "seeded"),
)
CASES["eagle-end"] = Case(
    method="eagle", mode=DEFAULT, engine={**ENGINE, "max_model_len": END}, requests=("greedy",)
)
# Trees by a loop, by heads and from the text, each with so many drafts.
TREES: dict[str, tuple[int | str, int]] = {
    "eagle3": ("5x3", 15),
    "mtp": ("3x2", 6),
    "medusa": (12, 12),
    "ngram": (12, 12),
}
CASES |= {
    f"{method}-tree-{mode}": Case(
        method=method,
        mode=mode,
        engine={**ENGINE, "additional_config": {"ascend_spec": {"tree": tree}}},
        options={"num_speculative_tokens": size},
        requests=("greedy", "penalties", "seeded"),
    )
    for method, (tree, size) in TREES.items()
    for mode in MODES
}


def without_speculation() -> Case:
    """Return the reference: one token a step, eagerly."""
    return Case(method=None, mode=EAGER, engine=ENGINE, requests=EXACT)
