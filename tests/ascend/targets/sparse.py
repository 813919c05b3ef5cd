"""A DeepSeek V3.2: sparse MLA with indexers, and experts."""

from __future__ import annotations

from dataclasses import replace

from tests.ascend.matrix import EXACT, MODES, Case
from tests.zoo import ZOO

# Sparse MLA, and experts. Everything is float32: prompts in pieces, too, and those that begin as
# an earlier one did.
SPARSE_MODEL = str(ZOO / "target-deepseek-v32")
SPARSE_CASES: dict[str, Case] = {
    f"sparse-{mode}": Case(
        method="mtp",
        mode=mode,
        requests=("greedy", "seeded"),
        watched=True,
        options={
            "model": SPARSE_MODEL,
            **({"draft_sample_method": "greedy"} if mode == "eager" else {}),
        },
    )
    for mode in MODES
}
SPARSE_CASES |= {
    "sparse-stock": replace(
        SPARSE_CASES["sparse-full_decode_only"],
        engine={"additional_config": {"ascend_spec": {"draft_loop": "stock"}}},
        watched=False,
    ),
    "sparse-async": Case(
        method="mtp",
        mode="full_decode_only",
        engine={"async_scheduling": True},
        requests=EXACT,
        options={"model": SPARSE_MODEL},
    ),
    "sparse-one-draft": Case(
        method="mtp",
        mode="default",
        requests=EXACT,
        options={"model": SPARSE_MODEL, "num_speculative_tokens": 1},
    ),
    "sparse-chunked": Case(
        method="mtp",
        mode="default",
        engine={"max_num_batched_tokens": 48, "max_num_seqs": 4},
        options={"model": SPARSE_MODEL},
    ),
    "sparse-tp2": Case(
        method="mtp",
        mode="full_decode_only",
        devices=2,
        engine={"enable_expert_parallel": True},
        options={"model": SPARSE_MODEL},
    ),
}
# As many ranks as it has heads and experts.
SPARSE_CASES["sparse-tp4"] = replace(SPARSE_CASES["sparse-tp2"], devices=4)
# A request at a time, whose prompts then begin in the cache for those that come together.
SPARSE_CASES |= {
    f"sparse-{mode}-alone": replace(
        SPARSE_CASES[f"sparse-{mode}"], requests=("alone", "greedy"), watched=False
    )
    for mode in ("eager", "full_decode_only")
}
SPARSE_CASES |= {
    f"sparse-{mode}-no-prefixes": replace(
        SPARSE_CASES[f"sparse-{mode}"],
        engine={"enable_prefix_caching": False},
        requests=("greedy", "alone"),
        watched=False,
    )
    for mode in ("eager", "full_decode_only")
}
# By day one engine without graphs and one with full ones; the first is sparse-chunked's, too.
SPARSE_BY_NIGHT = SPARSE_CASES.keys() - {"sparse-eager", "sparse-full_decode_only"}
