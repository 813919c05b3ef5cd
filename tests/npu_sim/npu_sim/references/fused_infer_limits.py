"""What the documents of FusedInferAttentionScore (FIA) do not allow, limit by limit.

From Ascend's documentation of `npu_fused_infer_attention_score` and `…_v2` (op-plugin, docs/zh),
for the layouts, caches and modes that have a reference here. `NPU_SIM_BEYOND` names the limits that
a call may exceed, `ALLOWED` those that vllm-ascend itself exceeds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch

from npu_sim.references.checks import fail

if TYPE_CHECKING:
    from npu_sim.references.fused_infer_problem import Problem

BEYOND = "NPU_SIM_BEYOND"
# What vllm-ascend 0.30.0rc2 does for which they are allowed.
ALLOWED = {
    "head_size": "it serves models with heads of 64, 80, 96 and 256 through TND",
    "nbsd_rows": "its MLA decodes one row per request with BNSD_NBSD and BSND_NBSD",
    "paged_gaps": "its caches have one layer's keys and values of a block side by side",
    "paged_heads": "it gives MLA a cache of [blocks, kv_heads, block_size, size] with BSND_NBSD",
}
LATENT_SIZE, ROPE_SIZE = 512, 64
TND_SIZES = ((128, 128), (192, 128), (192, 192))  # of queries and keys, and of values
MOST_SEQUENCES = 4096
CACHED = ("key", "value", "key_rope")  # may lie in the blocks of a cache

# A limit gives what is wrong, or nothing.
Limit = Callable[["Problem"], str | None]
LIMITS: dict[str, Limit] = {}


def limit(function: Limit) -> Limit:
    """Register a limit under the name of its function."""
    LIMITS[function.__name__] = function
    return function


def may_exceed() -> set[str]:
    """Name the limits that calls may exceed.

    Raises:
        OpError: There is no such limit.
    """
    chosen = os.environ.get(BEYOND)
    names = set(ALLOWED) if chosen is None else set(filter(None, chosen.split(",")))
    if unknown := names - set(LIMITS):
        fail(f"{BEYOND} names {', '.join(sorted(unknown))}; valid: {', '.join(sorted(LIMITS))}")
    return names


def check(problem: Problem) -> None:
    """Fail if a call exceeds a limit that it may not exceed."""
    allowed = may_exceed()
    for name, exceeded in LIMITS.items():
        if name not in allowed and (reason := exceeded(problem)):
            fail(f"{reason} (documented; {BEYOND}={name} allows it)")


def _sizes(problem: Problem) -> tuple[int, int]:
    """Give the sizes of a query's and of a value's head."""
    size = problem.query.shape[-1]
    return size // (problem.num_heads if problem.layout == "BSH" else 1), problem.value_size


def _is_latent(problem: Problem) -> bool:
    return problem.query_rope is not None and _sizes(problem)[0] == LATENT_SIZE


def _tensors(problem: Problem) -> Iterator[tuple[str, torch.Tensor]]:
    """Give a call's tensors by name, of a cache its first block."""
    for name in ("query", "mask", "query_rope", *CACHED):
        tensor = getattr(problem, name)
        if tensor is not None:
            yield name, tensor[0] if name in CACHED and problem.is_paged else tensor


@limit
def contiguous(problem: Problem) -> str | None:
    """No tensor with gaps; no block of a cache."""
    gaps = [name for name, tensor in _tensors(problem) if not tensor.is_contiguous()]
    return f"not contiguous: {', '.join(gaps)}" if gaps else None


@limit
def paged_gaps(problem: Problem) -> str | None:
    """No gaps between the blocks of a cache."""
    blocks = {name: tensor for name, tensor in _tensors(problem) if name in CACHED}
    gaps = [
        name
        for name, block in blocks.items()
        if problem.is_paged and block.is_contiguous() and not getattr(problem, name).is_contiguous()
    ]
    return f"gaps between the blocks of {', '.join(gaps)}" if gaps else None


@limit
def head_alignment(problem: Problem) -> str | None:
    """Heads of a multiple of 16."""
    wrong = [size for size in _sizes(problem) if size % 16]
    return f"heads of size {wrong[0]}; valid: multiples of 16" if wrong else None


@limit
def head_size(problem: Problem) -> str | None:
    """TND: 128, or 192 with values of 128 or 192; 128 beside a rope part."""
    sizes = _sizes(problem)
    if problem.layout != "TND" or _is_latent(problem):
        return None
    valid = TND_SIZES if problem.query_rope is None else TND_SIZES[:1]
    if sizes in valid:
        return None
    return f"heads of sizes {sizes} with TND; valid: {', '.join(map(str, valid))}"


@limit
def block_size(problem: Problem) -> str | None:
    """Multiples of 16 to 1024 for TND and absorbed MLA; else of 128, or 16 for one row, to 512."""
    if problem.block_table is None:
        return None
    free = problem.layout == "TND" or _is_latent(problem)
    unit = 16 if free or problem.q_size == 1 else 128
    most = 1024 if free else 512
    size = problem.block_size
    if 0 < size <= most and size % unit == 0:
        return None
    return f"block_size is {size}; valid: multiples of {unit} up to {most}"


@limit
def paged_heads(problem: Problem) -> str | None:
    """BSH and BSND: the blocks of a cache are [block_size, kv_heads * size]."""
    wrong = problem.layout in ("BSH", "BSND") and problem.is_paged and problem.key.dim() != 3
    return (
        f"a cache of {problem.key.dim()} dimensions with {problem.layout}; valid: 3"
        if wrong
        else None
    )


@limit
def paged_shapes(problem: Problem) -> str | None:
    """The caches of keys and values have one shape."""
    key, value = tuple(problem.key.shape), tuple(problem.value.shape)
    return f"key {key} and value {value} differ" if problem.is_paged and key != value else None


@limit
def sparse_mode(problem: Problem) -> str | None:
    """TND and absorbed MLA: 0, 3 and 4."""
    if problem.sparse_mode in (0, 3, 4) or not (problem.layout == "TND" or _is_latent(problem)):
        return None
    return f"sparse_mode is {problem.sparse_mode} with TND or absorbed MLA; valid: 0, 3, 4"


@limit
def mask_in_mode_0(problem: Problem) -> str | None:
    """TND: no mask in sparse mode 0."""
    wrong = problem.layout == "TND" and problem.sparse_mode == 0 and problem.mask is not None
    return "atten_mask with sparse_mode 0 and TND; valid: None" if wrong else None


@limit
def mask_over_pages(problem: Problem) -> str | None:
    """A full mask covers all blocks of a row of the block table."""
    table, mask = problem.block_table, problem.mask
    if table is None or mask is None or problem.sparse_mode > 1:
        return None
    keys = table.shape[1] * problem.block_size
    return f"atten_mask for {mask.shape[-1]} keys; valid: {keys}" if mask.shape[-1] < keys else None


@limit
def sequences(problem: Problem) -> str | None:
    """TND: up to 4096 sequences."""
    wrong = problem.layout == "TND" and problem.batch > MOST_SEQUENCES
    return f"{problem.batch} sequences with TND; valid: up to {MOST_SEQUENCES}" if wrong else None


@limit
def nbsd_rows(problem: Problem) -> str | None:
    """A result laid out as NBSD: 2 to 16 rows."""
    if not problem.layouts.endswith("_NBSD") or 1 < problem.q_size <= 16:
        return None
    return f"{problem.q_size} rows with {problem.layouts}; valid: 2 to 16"


@limit
def transposed_rows(problem: Problem) -> str | None:
    """BNSD_BSND: more than one row."""
    wrong = problem.layouts == "BNSD_BSND" and problem.q_size == 1
    return "1 row with BNSD_BSND; valid: more" if wrong else None


@limit
def rope(problem: Problem) -> str | None:
    """MLA: heads of 512 or 128, and rope parts of 64."""
    if problem.query_rope is None:
        return None
    size, part = _sizes(problem)[0], problem.query_rope.shape[-1]
    if size in (LATENT_SIZE, 128) and part == ROPE_SIZE:
        return None
    return f"heads of size {size} with rope parts of {part}; valid: 512 or 128 with {ROPE_SIZE}"


@limit
def latent_heads(problem: Problem) -> str | None:
    """Absorbed MLA: 1, 2, 4 … 128 heads over one."""
    heads, kv_heads = problem.num_heads, problem.num_kv_heads
    if not _is_latent(problem) or (kv_heads == 1 and heads in (1 << n for n in range(8))):
        return None
    return f"absorbed MLA with {heads} heads over {kv_heads}; valid: 1, 2, 4, … 128 over 1"


@limit
def latent_layout(problem: Problem) -> str | None:
    """Absorbed MLA: not BNSD_BSND."""
    wrong = _is_latent(problem) and problem.layouts == "BNSD_BSND"
    return f"absorbed MLA with {problem.layouts}" if wrong else None


@limit
def latent_log_sums(problem: Problem) -> str | None:
    """Absorbed MLA: no log sums."""
    return "absorbed MLA with softmax_lse" if _is_latent(problem) and problem.want_lse else None
