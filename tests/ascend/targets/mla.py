"""A target with DeepSeek's attention, MLA."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.ascend.matrix import EXACT, MODES, REQUESTS, SEEDED, Case
from tests.zoo import ZOO

# Of the documents' limits of fused attention (tests/npu_sim/README.md): those that vllm-ascend's
# MLA exceeds; small heads, smaller than any DeepSeek's; and the gaps of queries, with prompts in
# pieces.
MLA_BEYOND = {"NPU_SIM_BEYOND": "head_size,nbsd_rows,paged_gaps,paged_heads,rope,contiguous"}
MLA_ENVIRONMENT = {
    **MLA_BEYOND,
    # Where nothing that is compiled is kept, as in these tests, vLLM takes a model for one that
    # changes its buffers if it finds the name "update" in the code that Dynamo made of its forward
    # pass (vllm/compilation/wrapper.py:TorchCompileWithNoGuardsWrapper.bytecode_hook). Dynamo keeps
    # all names of the original. In vllm-ascend's DeepSeek one is the update of a dict that only
    # pipeline parallelism runs (vllm_ascend/patch/worker/patch_deepseek_v2.py:_patched_forward).
    "VLLM_USE_BYTECODE_HOOK": "0",
}
# DeepSeek's attention, MLA. vllm-ascend reads prompts in bfloat16 whatever the dtype is, and in
# float32 only those that are new and whole; all else is float32 then. So are verified rows.
MLA_ENGINE: dict[str, Any] = {"max_num_batched_tokens": 1280, "enable_prefix_caching": False}
# A seed repeats between modes where drafts are picked likewise; full graphs have greedy ones.
MLA_CASES: dict[str, Case] = {
    f"deepseek-{mode}": Case(
        method="mtp",
        mode=mode,
        engine=MLA_ENGINE,
        requests=SEEDED if mode != "full_decode_only" else (*SEEDED, "seeded_in_twos"),
        watched=True,
        options={
            "model": str(ZOO / "target-deepseek"),
            **({"draft_sample_method": "greedy"} if mode == "eager" else {}),
        },
    )
    for mode in MODES
}
MLA_CASES |= {
    "deepseek-stock": replace(
        MLA_CASES["deepseek-full_decode_only"],
        engine={**MLA_ENGINE, "additional_config": {"ascend_spec": {"draft_loop": "stock"}}},
        requests=("greedy",),
        watched=False,
    ),
    "deepseek-async": replace(
        MLA_CASES["deepseek-full_decode_only"],
        engine={**MLA_ENGINE, "async_scheduling": True},
        requests=EXACT,
        watched=False,
    ),
    # As tests/ascend/matrix.py says: by day two methods are asked for everything.
    "deepseek-asked-more": replace(
        MLA_CASES["deepseek-full_decode_only"], requests=tuple(REQUESTS), watched=False
    ),
    "deepseek-tp2": replace(
        MLA_CASES["deepseek-full_decode_only"], devices=2, requests=("greedy",), watched=False
    ),
}
MLA_BY_NIGHT = ("deepseek-stock", "deepseek-async", "deepseek-asked-more", "deepseek-tp2")
# Prompts in pieces, of which later ones are read together with the cache of those before.
MLA_CASES["deepseek-chunked"] = Case(
    method="mtp",
    mode="default",
    engine={"dtype": "bfloat16", "max_num_batched_tokens": 48, "max_num_seqs": 4},
    options={"model": str(ZOO / "target-deepseek")},
)
