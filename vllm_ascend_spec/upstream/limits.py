"""What the installed version cannot do, worded for error messages; None where it can."""

from __future__ import annotations

from vllm_ascend_spec.upstream.ranges import vllm_ascend_is, vllm_is

# Why K cannot change from step to step.
FIXED_K = "vLLM 0.23, whose runner makes K drafts in each step" if vllm_is("<0.30") else None
# Why our draft loop cannot be used on an NPU.
NO_LOOP_ON_NPU = (
    "vllm-ascend 0.23, which runs its own draft loop" if vllm_ascend_is("<0.30") else None
)
# Why Gemma 4's assistant cannot draft on an NPU.
NO_ASSISTANT_ON_NPU = (
    "vllm-ascend 0.23, which has no proposer for it" if vllm_ascend_is("<0.30") else None
)
# Why a method cannot run, keyed by its name and the family of draft loops.
WITHOUT_METHODS = (
    {
        ("dflash", "vllm"): "vLLM 0.23 on a CPU, whose DFlash model reads weights that the CPU's "
        "kernels have repacked",
        ("dspark", "vllm"): "vLLM 0.23, which does not know it",
        ("dspark", "ascend"): "vLLM 0.23, which does not know it",
        ("extract_hidden_states", "vllm"): "vLLM 0.23 on a CPU, whose connector of hidden states "
        "waits for streams of a GPU",
    }
    if vllm_is("<0.30")
    else {}
)
# Why a CPU cannot run targets with multi-head latent attention.
NO_MLA_ON_CPU = "vLLM 0.23, which has no such attention for a CPU" if vllm_is("<0.30") else None
# Why a CPU cannot speculate for targets with Gated DeltaNet layers.
NO_GATED_DELTA_NET_ON_CPU = (
    None if vllm_is(">=0.30") and vllm_is("<0.31") else "a vLLM other than 0.30"
)
# Why data-parallel replicas of a mixture of experts cannot run on a CPU.
NO_EXPERT_REPLICAS_ON_CPU = (
    "vLLM 0.23, where they wait for each other for ever on a CPU" if vllm_is("<0.30") else None
)
# Why vLLM's own option cannot choose the block rule.
NO_BLOCK_METHOD = "vLLM 0.23, which does not know it" if vllm_is("<0.30") else None
# Speculation options that some supported versions lack, and the first version with each.
FIRST_WITH = {
    "disable_eagle_block_drop": "0.30",
    "kv_cache_dtype": "0.30",
    "num_speculative_tokens_per_batch_size": "0.30",
    "use_heterogeneous_vocab": "0.30",
    "dspark_draft_topk": "0.30",
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
# Extra options of ``dflash``: none from 0.33 on, where vLLM drops no prefix block for it.
OF_DFLASH = frozenset(() if vllm_is(">=0.33") else ("disable_eagle_block_drop",))
# Why drafts cannot be trees.
NO_TREES = (
    "vLLM 0.23, whose attention on a CPU writes keys and reads them in one call"
    if vllm_is("<0.30")
    else None
)
# Why a server cannot have our page.
NO_PAGE = "vLLM 0.23, which takes no routes of plugins" if vllm_is("<0.30") else None

EVERY = tuple(
    limit
    for limit in (
        FIXED_K,
        NO_LOOP_ON_NPU,
        NO_ASSISTANT_ON_NPU,
        *WITHOUT_METHODS.values(),
        NO_MLA_ON_CPU,
        NO_GATED_DELTA_NET_ON_CPU,
        NO_EXPERT_REPLICAS_ON_CPU,
        NO_BLOCK_METHOD,
        NO_TREES,
        NO_PAGE,
    )
    if limit is not None
)
