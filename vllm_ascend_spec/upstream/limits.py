"""What a supported version cannot do, as an error names it; None where it can."""

from __future__ import annotations

from vllm_ascend_spec.upstream.ranges import vllm_ascend_is, vllm_is

# What keeps K from changing from step to step.
FIXED_K = "vLLM 0.23, whose runner makes K drafts in each step" if vllm_is("<0.30") else None
# What keeps our draft loop from being used on an NPU.
NO_LOOP_ON_NPU = (
    "vllm-ascend 0.23, which runs its own draft loop" if vllm_ascend_is("<0.30") else None
)
# What keeps methods from running, by their names and the family of draft loops.
WITHOUT_METHODS = (
    {
        ("dflash", "vllm"): "vLLM 0.23 on a CPU, whose DFlash model reads weights that the CPU's "
        "kernels have repacked",
        ("extract_hidden_states", "vllm"): "vLLM 0.23 on a CPU, whose connector of hidden states "
        "waits for streams of a GPU",
    }
    if vllm_is("<0.30")
    else {}
)
# What keeps a CPU from running targets with multi-head latent attention.
NO_MLA_ON_CPU = "vLLM 0.23, which has no such attention for a CPU" if vllm_is("<0.30") else None
# What keeps copies of a mixture of experts from running on a CPU.
NO_EXPERT_COPIES_ON_CPU = (
    "vLLM 0.23, where they wait for each other for ever on a CPU" if vllm_is("<0.30") else None
)
# What keeps vLLM's own option from choosing the block rule.
NO_BLOCK_METHOD = "vLLM 0.23, which does not know it" if vllm_is("<0.30") else None
# Options of speculation that not all supported versions have, and the first that has each.
FIRST_WITH = {
    "disable_eagle_block_drop": "0.30",
    "kv_cache_dtype": "0.30",
    "num_speculative_tokens_per_batch_size": "0.30",
    "use_heterogeneous_vocab": "0.30",
    "disable_lookahead_block_hashes": "0.33",
    "draft_lm_head_quantization": "0.33",
    "fly_entropy_threshold": "0.33",
    "fly_entropy_top_k": "0.33",
    "fly_window_size": "0.33",
    "xpress_topc": "0.33",
}
WITHOUT_OPTIONS = {
    option: f"vLLM before {first}, which does not know the option"
    for option, first in FIRST_WITH.items()
    if vllm_is(f"<{first}")
}
# Options of ``dflash`` alone: from 0.33 on vLLM drops no block of a prefix for it.
OF_DFLASH = frozenset(() if vllm_is(">=0.33") else ("disable_eagle_block_drop",))
# What keeps a server from having a page of ours.
NO_PAGE = "vLLM 0.23, which takes no routes of plugins" if vllm_is("<0.30") else None

EVERY = tuple(
    limit
    for limit in (
        FIXED_K,
        NO_LOOP_ON_NPU,
        *WITHOUT_METHODS.values(),
        NO_MLA_ON_CPU,
        NO_EXPERT_COPIES_ON_CPU,
        NO_BLOCK_METHOD,
        NO_PAGE,
    )
    if limit is not None
)
