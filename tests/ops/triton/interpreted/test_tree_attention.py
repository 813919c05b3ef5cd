"""The Triton kernel of ``tree_attention`` in the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from tests.ops.cases import Numbers
from tests.ops.tree_attention import Batch, Request, assert_right, attend, dense
from tests.ops.trees import SHAPES, tree_parents
from vllm_ascend_spec.ops.tree_attention import triton as host
from vllm_ascend_spec.ops.triton_kernels.tree_attention import capped, count_zeros

BUSHY = (-1, 0, 1, -1, 0, 3, 1, 5, -1, 8)
# Prompts, chains and trees; blocks of keys that end within text, tree, and between both.
MIXED = (
    Request(37, 1, BUSHY),
    Request(0, 40),
    Request(5, 3, (-1, -1, 0)),
    Request(95, 1, (-1, 0)),
    Request(130, 1, BUSHY),
)


@pytest.fixture(autouse=True)
def products_of_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy has no bfloat16, so the interpreter multiplies their bits; a GPU does it exactly."""
    multiply = interpreter.InterpreterBuilder.create_dot

    def widened(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        bits = handle.data.astype(np.uint32) << 16
        return interpreter.TensorHandle(bits.view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *more: Any) -> Any:
        return multiply(self, widened(a), widened(b), *more)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_prompts_chains_and_trees_in_one_batch(dtype: torch.dtype) -> None:
    assert_right(Batch(MIXED, dtype=dtype, padding=2), "triton")


def random_request(numbers: Numbers, most: int) -> Request:
    size = numbers.integer(0, most)
    parents = tree_parents(numbers.pick(SHAPES), size, numbers)
    return Request(numbers.integer(0, 70), numbers.integer(1, 3), tuple(parents))


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 40))]
)
def test_random_batches(seed: int) -> None:
    numbers = Numbers(seed)
    found = [random_request(numbers, 20) for _ in range(numbers.integer(1, 4))]
    heads = numbers.pick([(4, 2), (7, 1), (3, 3)])
    assert_right(
        Batch(
            found,
            num_heads=heads[0],
            num_kv_heads=heads[1],
            head_size=numbers.pick([16, 40, 64]),
            block_size=numbers.pick([16, 32, 48]),
            seed=seed,
        ),
        "triton",
    )


@pytest.mark.parametrize("head_size", [80, 128, 256])
def test_sizes_of_heads(head_size: int) -> None:
    assert_right(Batch([Request(20, 1, BUSHY)], head_size=head_size), "triton")


@pytest.mark.parametrize(
    "shape", ["comb", *(pytest.param(s, marks=pytest.mark.nightly) for s in ("star", "deep"))]
)
def test_trees_of_63_nodes(shape: str) -> None:
    parents = tuple(tree_parents(shape, 63, Numbers(3)))
    assert_right(Batch([Request(70, 1, parents), Request(0, 1, parents)], num_heads=2), "triton")


@pytest.mark.parametrize("window", [64, 100])
def test_windows(window: int) -> None:
    """Blocks before every window hold anything: vLLM gives them to others."""
    long = [Request(context, 1, BUSHY) for context in (60, 150, 209)] + [Request(90, 30)]
    batch = Batch(long, options={"window": window})
    assert_right(batch, "triton")
    arguments = batch.arguments()
    expected = attend(arguments, "triton")
    for request, blocks in zip(long, arguments["block_table"], strict=True):
        free = max(request.context + 1 - window, 0) // batch.block_size
        blocks[:free] = 0  # which holds NaN
    assert int((arguments["block_table"] == 0).sum()) > 5
    assert torch.equal(attend(arguments, "triton"), expected)


@pytest.mark.parametrize("options", [{"soft_cap": 2.0}, {"sinks": torch.tensor([0.5, -1, 9, 0])}])
def test_caps_and_sinks(options: dict[str, Any]) -> None:
    assert_right(Batch(MIXED[:3], options=options), "triton")


def test_keys_that_no_row_sees_may_be_anything() -> None:
    """A sibling's NaN would be one in a chain's later rows, too; here it is behind all rows."""
    batch = Batch([Request(20, 1, BUSHY)], block_size=48)
    arguments = batch.arguments()
    expected = attend(arguments, "triton")
    table = arguments["block_table"][0]
    for name in ("key_cache", "value_cache"):
        arguments[name][table[0], 31:] = float("nan")
    assert torch.equal(attend(arguments, "triton"), expected)


@pytest.mark.parametrize("node", [0, 5, 9])
def test_a_wrong_bit_is_found(node: int) -> None:
    """Negative control: a sibling that is seen, or a parent that is not."""
    arguments = Batch(MIXED).arguments()
    expected = dense(MIXED, arguments)
    arguments["seen"][node + 1] ^= 1 << (len(BUSHY) - max(node - 1, 0))
    wrong = attend(arguments, "triton")[: expected.shape[0]].double() - expected
    assert float(wrong[node + 1].abs().max()) > 1e-3
    wrong[node + 1] = 0
    assert float(wrong.abs().max()) < 1e-5


@pytest.mark.parametrize("splits", [4, pytest.param(16, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("options", [{}, {"window": 64, "sinks": torch.tensor([0.5, -1, 9, 0])}])
def test_splits_are_joined(
    splits: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of them have no keys, and no row of padding is written."""
    monkeypatch.setattr(host, "splits_of", lambda *_: splits)
    batch = Batch([MIXED[0], *MIXED[2:4]], head_size=40, padding=2, options=options)
    assert_right(batch, "triton")
    arguments = batch.arguments()
    whole = attend({**arguments, "is_batch_invariant": True}, "triton")
    monkeypatch.undo()
    assert torch.equal(attend(arguments, "triton"), whole)


@pytest.mark.parametrize("splits", [1, 2])
def test_rows_of_a_dummy_run_are_finite(splits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM captures a graph for texts of one token, with more rows than that."""
    monkeypatch.setattr(host, "splits_of", lambda *_: splits)
    arguments = Batch([Request(20, 1, (-1, 0, -1))]).arguments()
    arguments["seq_lens"].fill_(1)
    output = attend(arguments, "triton")
    assert bool((output[:3] == 0).all())
    value = arguments["value_cache"][arguments["block_table"][0, 0], 0]
    torch.testing.assert_close(output[3], value.repeat_interleave(2, dim=0))


def test_the_number_of_lanes_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = []
    for lanes in (16, 32, 64):
        monkeypatch.setattr(host, "lanes_of", lambda _, lanes=lanes: lanes)
        outputs.append(attend(Batch(MIXED).arguments(), "triton"))
    for output in outputs[1:]:
        torch.testing.assert_close(output, outputs[0], atol=2e-6, rtol=0)


@triton.jit
def zeros_kernel(bits, counts, SIZE: tl.constexpr):
    index = tl.arange(0, SIZE)
    tl.store(counts + index, count_zeros(tl.load(bits + index)))


def test_zeros_are_counted() -> None:
    bits = torch.randint(-(2**63), 2**63 - 1, (64,)) & torch.randint(-(2**63), 2**63 - 1, (64,))
    bits[:4] = torch.tensor([0, -1, 1, -(2**63)])
    counts = torch.empty(64, dtype=torch.int32)
    zeros_kernel[(1,)](bits, counts, SIZE=64)
    expected = [64 - (value & (2**64 - 1)).bit_count() for value in bits.tolist()]
    assert counts.tolist() == expected


@triton.jit
def capped_kernel(x, out, SIZE: tl.constexpr):
    index = tl.arange(0, SIZE)
    tl.store(out + index, capped(tl.load(x + index), 3.0))


def test_caps_hold_far_away() -> None:
    x = torch.tensor([-1e6, -300.0, -1.0, 0.0, 0.5, 2.0, 300.0, 1e6])
    out = torch.empty(8)
    capped_kernel[(1,)](x, out, SIZE=8)
    torch.testing.assert_close(out, 3 * torch.tanh(x / 3), atol=1e-6, rtol=0)
