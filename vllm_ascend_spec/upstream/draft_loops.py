"""Choose our bases of vllm-ascend's proposers: 0.23 has no hooks for our draft loop."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_ascend_spec.versions import is_in_range

ASCEND = "vllm_ascend_spec.methods.loops.ascend"
# Replaces the class that a method's record names; None drops it.
BEFORE_030: dict[str, str | None] = {
    f"{ASCEND}.loop:AscendDraftLoop": f"{ASCEND}.stock_loop:AscendStockLoop",
    "vllm_ascend_spec.methods.dflash.context_first:ContextFirst": None,
    # They are not there, and what wants them is refused (limits.py).
    "vllm_ascend.spec_decode.dspark_proposer:AscendDSparkProposer": None,
    "vllm_ascend.spec_decode.gemma4_proposer:AscendGemma4Proposer": None,
}
# Modules that only our own draft loop uses.
OF_OUR_LOOP = tuple(
    f"{ASCEND}.{name}"
    for name in ("loop", "metadata", "graphs", "graph_params", "shared_indices", "split_head")
)
# Modules that only trees use, which are refused before 0.30 (limits.py).
OF_TREES = tuple(
    f"vllm_ascend_spec.worker.{name}"
    for device in ("cpu", "cuda", "npu")
    for name in (f"{device}_tree_attention", f"{device}_trees")
)


def bases_of(named: Sequence[str], vllm_ascend: str | None) -> tuple[str, ...]:
    """Return the base classes of a drafter.

    Args:
        named: base classes in a method's record, as ``module:Class``.
        vllm_ascend: version of vllm-ascend, or None.
    """
    if not is_in_range(vllm_ascend, "<0.30"):
        return tuple(named)
    return tuple(base for name in named if (base := BEFORE_030.get(name, name)) is not None)


def modules_without_use(vllm_ascend: str | None) -> set[str]:
    """Return our modules that a version of vllm-ascend does not use."""
    if is_in_range(vllm_ascend, "<0.30"):
        skipped = {name.partition(":")[0] for name, base in BEFORE_030.items() if base is None}
        return {*OF_OUR_LOOP, *OF_TREES, *skipped}
    return {f"{ASCEND}.stock_loop"}
