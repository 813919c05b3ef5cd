"""Every kernel compiles for NVIDIA GPUs, as the backends launch it, and fits into them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.ops.batches import RULES, Arguments
from tests.ops.cases import FILTERS
from tests.ops.seeded import NOT_TAKEN
from tests.ops.tree_attention import Batch, Request
from tests.ops.triton.interpreter import INTERPRETED
from vllm_ascend_spec.devices import cuda
from vllm_ascend_spec.ops.grammar_mask.triton import grammar_mask
from vllm_ascend_spec.ops.tree_attention import triton as launch
from vllm_ascend_spec.ops.tree_attention.triton import tree_attention
from vllm_ascend_spec.ops.verify_greedy.triton import verify_greedy
from vllm_ascend_spec.ops.verify_sample.triton import verify_sample
from vllm_ascend_spec.ops.verify_seeded.triton import verify_seeded
from vllm_ascend_spec.ops.verify_tree.triton import verify_tree

pytest.importorskip("triton", reason="needs the package triton")
pytestmark = pytest.mark.skipif(INTERPRETED, reason="needs Triton without its interpreter")

if not INTERPRETED:
    from tests.ops.triton.offline import compiling_only, resources_of

# Shared memory of a program, in bytes: of GPUs with capability 8.6 and 8.9, which have the least.
LEAST_SHARED = 99 * 1024
# A word or two that registers had no room for, outside of loops.
FEW_SPILLS = 16
HALF = (torch.bfloat16, torch.float16)
VOCAB = 151_936


def sampled(
    dtype: torch.dtype, filters: tuple[str, ...], with_draft_probs: bool, vocab: int = VOCAB
) -> Arguments:
    """Return arguments whose shapes are those of a large model; the values do not matter."""
    values = {"top_k": torch.ones(3).int(), "top_p": torch.ones(3), "min_p": torch.zeros(3)}
    return {
        "logits": torch.zeros(10, vocab, dtype=dtype),
        "draft_token_ids": torch.zeros(7, dtype=torch.int32),
        "cu_num_draft_tokens": torch.tensor([3, 3, 7], dtype=torch.int32),
        "max_draft_len": 4,
        "temperature": torch.ones(3),
        **{name: values[name] if name in filters else None for name in values},
        "draft_probs": torch.zeros(7, vocab) if with_draft_probs else None,
        "accept_uniform": torch.zeros(7, dtype=torch.float64),
        "sample_uniform": torch.zeros(3, dtype=torch.float64),
    }


def assert_fits(kernel: Any, folder: Path) -> None:
    assert kernel.asm["cubin"]
    assert ".f64" not in kernel.asm["ptx"]
    resources = resources_of(kernel, folder)
    assert resources.stack <= FEW_SPILLS, f"{kernel.name}: {resources}"
    assert resources.shared <= LEAST_SHARED, f"{kernel.name}: {resources}"


VARIANTS = [
    *(
        (90, torch.float32, *rest)
        for rest in itertools.product(RULES, [(), FILTERS], [False, True])
    ),
    *(
        (90, torch.bfloat16, "block", *rest)
        for rest in itertools.product([(), FILTERS], [False, True])
    ),
    *((80, torch.float32, "block", *rest) for rest in [((), False), (FILTERS, True)]),
    (90, torch.float16, "block", FILTERS, True),
    *((90, torch.float32, "token", (name,), False) for name in FILTERS),
]


@pytest.mark.parametrize(("capability", "dtype", "rule", "filters", "with_draft_probs"), VARIANTS)
def test_sampled_verification(
    tmp_path: Path,
    capability: int,
    dtype: torch.dtype,
    rule: str,
    filters: tuple[str, ...],
    with_draft_probs: bool,
) -> None:
    arguments = sampled(dtype, filters, with_draft_probs)
    with compiling_only(capability) as kernels:
        verify_sample(**arguments, rule=rule)
    first = "filter_rows" if filters else "scan_sampled"
    assert [kernel.name for kernel in kernels] == [first, "finalize_sampled"]
    for kernel in kernels:
        assert_fits(kernel, tmp_path)


@pytest.mark.parametrize(
    ("vocab", "filters"),
    [(1, ()), (33, FILTERS), (32_001, ()), (32_001, FILTERS), (262_208, FILTERS), (600_000, ())],
)
def test_sampled_verification_of_other_vocabularies(
    tmp_path: Path, vocab: int, filters: tuple[str, ...]
) -> None:
    arguments = sampled(torch.float32, filters, False, vocab)
    with compiling_only(90) as kernels:
        verify_sample(**arguments, rule="token")
    for kernel in kernels:
        assert_fits(kernel, tmp_path)


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(("rule", "filters"), [("token", ()), ("block", FILTERS)])
def test_as_many_drafts_as_a_gpu_may_have(
    tmp_path: Path, capability: int, rule: str, filters: tuple[str, ...]
) -> None:
    arguments = sampled(torch.bfloat16, filters, True) | {"max_draft_len": cuda.DEVICE.max_drafts}
    names = ("logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_len")
    with compiling_only(capability) as kernels:
        verify_sample(**arguments, rule=rule)
        verify_greedy(*(arguments[name] for name in names))
    for kernel in kernels:
        assert_fits(kernel, tmp_path)


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_greedy_verification_and_masking(
    tmp_path: Path, capability: int, dtype: torch.dtype
) -> None:
    names = ("logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_len")
    arguments = sampled(dtype, (), False)
    with compiling_only(capability) as kernels:
        verify_greedy(*(arguments[name] for name in names))
        bits = torch.zeros(2, VOCAB // 32, dtype=torch.int32)
        grammar_mask(arguments["logits"], bits, torch.zeros(2, dtype=torch.int32))
    assert [kernel.name for kernel in kernels] == ["scan_greedy", "finalize_greedy", "mask_rows"]
    for kernel in kernels:
        assert_fits(kernel, tmp_path)


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("vocab", [33, VOCAB])
@pytest.mark.parametrize("filters", [(), FILTERS])
def test_seeded_verification(
    tmp_path: Path, capability: int, vocab: int, filters: tuple[str, ...]
) -> None:
    arguments = sampled(torch.bfloat16, filters, False, vocab)
    for name in NOT_TAKEN:
        arguments.pop(name, None)
    numbers = {"seeds": torch.zeros(3).long(), "positions": torch.zeros(3).long()}
    with compiling_only(capability) as kernels:
        verify_seeded(**arguments, **numbers)
    names = ["filter_rows"] if filters else []
    assert [kernel.name for kernel in kernels] == [*names, "scan_seeded", "finalize_seeded"]
    for kernel in kernels:
        assert_fits(kernel, tmp_path)


@pytest.mark.parametrize(
    ("capability", "num_nodes", "filters"),
    [(80, 64, FILTERS), pytest.param(90, 4, (), marks=pytest.mark.nightly)],
)
def test_verification_of_trees(
    tmp_path: Path, capability: int, num_nodes: int, filters: tuple[str, ...]
) -> None:
    arguments = sampled(torch.bfloat16, filters, False) | {"max_draft_len": num_nodes}
    for name in NOT_TAKEN:
        arguments.pop(name, None)
    numbers = {"seeds": torch.zeros(3).long(), "positions": torch.zeros(3).long()}
    with compiling_only(capability) as kernels:
        verify_tree(**arguments, **numbers, parents=torch.zeros(7, dtype=torch.int32))
    names = ["filter_rows"] if filters else []
    assert [kernel.name for kernel in kernels] == [*names, "scan_tree", "finalize_tree"]
    for kernel in kernels:
        assert_fits(kernel, tmp_path)


WINDOW = {"window": 128, "sinks": torch.zeros(8), "soft_cap": 30.0}
ATTENTION: list[tuple[int, torch.dtype, int, dict[str, Any]]] = [
    (80, torch.bfloat16, 128, {}),
    (90, torch.bfloat16, 256, WINDOW),
    *((80, dtype, size, WINDOW) for dtype in (torch.float16, torch.float32) for size in (64, 256)),
    *((90, dtype, 128, {}) for dtype in (torch.float16, torch.float32)),
]


@pytest.mark.parametrize(
    ("capability", "dtype", "head_size", "options"),
    [pytest.param(*v, marks=pytest.mark.nightly if i > 1 else ()) for i, v in enumerate(ATTENTION)],
)
@pytest.mark.parametrize("precision", ["tf32", pytest.param("ieee", marks=pytest.mark.nightly)])
def test_attention_along_paths(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capability: int,
    dtype: torch.dtype,
    head_size: int,
    options: dict[str, Any],
    precision: str,
) -> None:
    monkeypatch.setenv("TRITON_F32_DEFAULT", precision)
    requests = [Request(100, 1, (-1, 0, -1)), Request(0, 3)]
    batch = Batch(requests, dtype, num_heads=8, head_size=head_size, options=options)
    arguments = batch.arguments()
    splits = 16 if head_size == 128 else 1
    monkeypatch.setattr(launch, "splits_of", lambda *_: splits)
    with compiling_only(capability) as kernels:
        tree_attention(**arguments, output=torch.zeros_like(arguments["query"]))
    names = ["attend_along_paths", *["join_splits"] * (splits > 1)]
    assert [kernel.name for kernel in kernels] == names
    for kernel in kernels:
        assert_fits(kernel, tmp_path)
    kernel = kernels[0]
    assert "ld.global.v4" in kernel.asm["ptx"] or "cp.async" in kernel.asm["ptx"]
    assert "mma" in kernel.asm["ptx"] or (dtype, precision) == (torch.float32, "ieee")


def test_a_kernel_serves_all_batches_of_a_layer() -> None:
    with compiling_only(90) as kernels:
        for count in (1, 2, 16, 17):
            batch = Batch([Request(20, 1, (-1, 0, -1))] * count, torch.bfloat16, padding=count)
            arguments = batch.arguments()
            # A view of a table that is as wide for every batch, as a runner's is.
            table = torch.zeros(40, 8, dtype=torch.int32)[: arguments["seq_lens"].shape[0]]
            tree_attention(
                **{**arguments, "block_table": table},
                output=torch.zeros_like(arguments["query"]),
            )
    assert len({kernel.hash for kernel in kernels}) == 1


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_rows_are_read_in_vectors(dtype: torch.dtype) -> None:
    """A load of single logits would be several times slower."""
    names = ("logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_len")
    arguments = sampled(dtype, (), False)
    with compiling_only(90) as kernels:
        verify_greedy(*(arguments[name] for name in names))
    assert "ld.global.v4" in kernels[0].asm["ptx"]


def test_variants_do_not_multiply_with_the_batch() -> None:
    """A new variant would stop a server for a second while it is compiled."""
    names = ("logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_len")
    with compiling_only(90) as kernels:
        for num_reqs in (1, 2, 3, 16, 33):
            drafts = torch.zeros(2 * num_reqs + 1, dtype=torch.int32)
            arguments = {
                "logits": torch.zeros(3 * num_reqs, VOCAB, dtype=torch.bfloat16),
                # Of odd alignment, as a slice of a larger buffer is.
                "draft_token_ids": drafts[1:],
                "cu_num_draft_tokens": 2 * torch.arange(1, num_reqs + 1, dtype=torch.int32),
                "max_draft_len": 2 + num_reqs % 3,
            }
            verify_greedy(*(arguments[name] for name in names))
    assert len({kernel.hash for kernel in kernels}) == 2
