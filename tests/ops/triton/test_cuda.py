"""The Triton kernels on a real GPU: parity at full size, and in a captured graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.ops.batches import DTYPES, RULES, Arguments, make_drafts, make_sampled
from tests.ops.cases import FILTERS, parity_cases
from tests.ops.parity import assert_right, judge, judge_greedy
from tests.ops.sharp import sharpen
from tests.ops.tree_attention import TOLERANCES, Batch, Request, attend, dense
from tests.ops.trees import as_lists, path_to_the_last_node, ties_of_result, tree_cases
from vllm_ascend_spec.ops import grammar_mask, verify_greedy, verify_sample, verify_tree
from vllm_ascend_spec.ops.tree_attention import tree_attention

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="needs an NVIDIA GPU that PyTorch can use"
    ),
]
GREEDY_ARGUMENTS = ("logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_len")


def on_gpu(value: Any) -> Any:
    """Copy a tensor to the GPU as it is laid out; return anything else unchanged."""
    if not isinstance(value, torch.Tensor):
        return value
    copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")
    return copy.copy_(value)


def on_cpu(result: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.cpu() for tensor in result)


def run_sampled(arguments: Arguments) -> Any:
    moved = {name: on_gpu(value) for name, value in arguments.items()}
    return on_cpu(verify_sample(**moved, backend="triton"))


def assert_parity(count: int, seed: int, *, sharp: bool, **fixed: Any) -> None:
    verdicts = []
    for index, case in enumerate(parity_cases(count, seed, **fixed)):
        arguments = sharpen(case, index) if sharp else case
        verdicts.append(judge(arguments, run_sampled(arguments)))
    assert_right(verdicts)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sharp", [False, True])
def test_random_cases(rule: str, sharp: bool) -> None:
    assert_parity(200, 1, sharp=sharp, rule=rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("vocab", [32_001, 151_936, 262_208, 600_000])
def test_full_vocabularies(rule: str, vocab: int) -> None:
    assert_parity(8, vocab, sharp=True, vocab_size=vocab, max_requests=4, rule=rule)


@pytest.mark.parametrize("kind", ["flat", "equal", "coarse"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_filters_of_wide_distributions(kind: str, dtype: torch.dtype) -> None:
    """The largest logits of each lane do not reach far enough here: rows are searched."""
    fixed = {"kind": kind, "dtype": dtype, "filters": FILTERS, "vocab_size": 151_936}
    assert_parity(4, 3, sharp=False, max_requests=4, **fixed)


@pytest.mark.parametrize("dtype", DTYPES)
def test_greedy(dtype: torch.dtype) -> None:
    verdicts = []
    for case in parity_cases(100, 5, dtype=dtype):
        arguments = {name: case[name] for name in GREEDY_ARGUMENTS}
        moved = {name: on_gpu(value) for name, value in arguments.items()}
        result = on_cpu(verify_greedy(**moved, backend="triton"))
        verdicts.append(judge_greedy(arguments, result))
    assert_right(verdicts, most_ties=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [31, 4097, 151_936])
def test_masking(dtype: torch.dtype, vocab: int) -> None:
    logits = torch.randn(5, vocab).to(dtype)
    bits = torch.randint(-(2**31), 2**31, (3, -(-vocab // 32))).int()
    rows = torch.tensor([3, -1, 0], dtype=torch.int32)
    masked = on_gpu(logits)
    grammar_mask(masked, on_gpu(bits), on_gpu(rows), backend="triton")
    grammar_mask(logits, bits, rows, backend="reference")
    assert torch.equal(masked.cpu(), logits)


def batch_of(lengths: list[int], seed: int, filters: tuple[str, ...], probs: bool) -> Arguments:
    return make_sampled(lengths, 32_001, seed, filters=filters, with_draft_probs=probs)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("filters", [(), FILTERS])
@pytest.mark.parametrize("probs", [False, True])
def test_a_captured_graph_follows_its_inputs(
    rule: str, filters: tuple[str, ...], probs: bool
) -> None:
    """Capturing fails where the host waits for the device; replays see new values only."""
    static = {n: on_gpu(v) for n, v in batch_of([3, 1, 0, 4], 0, filters, probs).items()}

    def verify() -> Any:
        return verify_sample(**static, rule=rule, backend="triton")

    result = capture(verify)
    for seed, lengths in enumerate(([4, 0, 3, 1], [2, 2, 4, 0], [3, 1, 0, 4]), start=1):
        arguments = {**batch_of(lengths, seed, filters, probs), "max_draft_len": 4}
        output = replay(result, static, arguments)
        assert_right([judge({**arguments, "rule": rule}, output)], most_ties=1)


def test_a_captured_greedy_verification_follows_its_inputs() -> None:
    static = {n: on_gpu(v) for n, v in make_drafts([3, 1, 0, 4], 32_001, 0).items()}
    result = capture(lambda: verify_greedy(**static, backend="triton"))
    for seed, lengths in enumerate(([4, 0, 3, 1], [3, 1, 0, 4]), start=1):
        arguments = {**make_drafts(lengths, 32_001, seed), "max_draft_len": 4}
        assert_right([judge_greedy(arguments, replay(result, static, arguments))], most_ties=0)


@pytest.mark.parametrize("filters", [(), FILTERS])
def test_trees(filters: tuple[str, ...]) -> None:
    """Of all shapes, at full size; ties are as rare as by any other order of sums."""
    ties = 0
    for case in tree_cases(60, seed=61, filters=filters, vocab_size=151_936, max_requests=4):
        moved = {name: on_gpu(value) for name, value in case.items()}
        ties += ties_of_result(case, on_cpu(verify_tree(**moved, backend="triton")))
    assert ties <= 2


@pytest.mark.parametrize("shape", ["chain", "star", "comb"])
def test_trees_of_63_nodes(shape: str) -> None:
    case = path_to_the_last_node(num_nodes=63, vocab_size=66, shape=shape)
    moved = {name: on_gpu(value) for name, value in case.items()}
    result = on_cpu(verify_tree(**moved, backend="triton"))
    assert as_lists(result) == as_lists(verify_tree(**case, backend="reference"))


def test_a_captured_verification_of_trees_follows_its_inputs() -> None:
    fixed = {"vocab_size": 32_001, "max_requests": 1, "max_drafts": 6, "filters": FILTERS}
    cases = [
        {**case, "max_draft_len": 6}
        for case in tree_cases(40, seed=62, dtype=torch.float32, **fixed)
        if case["parents"].shape[0] == 6
    ]
    assert len(cases) > 2
    static = {name: on_gpu(value) for name, value in cases[0].items()}
    result = capture(lambda: verify_tree(**static, backend="triton"))
    assert sum(ties_of_result(case, replay(result, static, case)) for case in cases[1:]) <= 1


COMB = (-1, 0, 1, -1, -1, 0, 0)
ROWS = (
    Request(1000, 1, COMB),
    Request(0, 300),
    Request(5, 3, (-1, -1, 0)),
    Request(3000, 1, (-1, 0)),
    Request(4095, 1, COMB),
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_size", [64, 80, 128, 256])
@pytest.mark.parametrize("options", [{}, {"window": 128, "soft_cap": 20.0}])
def test_attention_along_paths(
    dtype: torch.dtype,
    head_size: int,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    batch = Batch(
        ROWS, dtype, num_heads=16, num_kv_heads=4, head_size=head_size, padding=3, options=options
    )
    arguments = batch.arguments()
    moved = {name: on_gpu(value) for name, value in arguments.items()}
    output = attend(moved, "triton").cpu()
    expected = dense(ROWS, arguments)
    count, limit = expected.shape[0], TOLERANCES[dtype]
    torch.testing.assert_close(output[:count].double(), expected, atol=limit, rtol=limit)
    assert bool((output[count:] == 7).all())


def test_captured_attention_follows_what_rows_see() -> None:
    shapes = [COMB, tuple(range(-1, 6)), (-1,) * 7]
    batches = [Batch([Request(500, 1, own)] * 4, torch.bfloat16) for own in shapes]
    given = batches[0].arguments()
    static = {name: on_gpu(value) for name, value in given.items()}
    output = torch.zeros_like(static["query"])

    def run() -> tuple[torch.Tensor]:
        tree_attention(**static, output=output)
        return (output,)

    result = capture(run)
    for batch in batches:
        seen = batch.seen(given["query"].shape[0])
        (found,) = replay(result, static, {"seen": seen})
        expected = dense(batch.requests, {**given, "seen": seen})
        torch.testing.assert_close(found.double(), expected, atol=3e-2, rtol=3e-2)


def capture(verify: Any) -> tuple[torch.cuda.CUDAGraph, Any]:
    """Run once, to compile, then capture."""
    verify()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = verify()
    return graph, output


def replay(captured: tuple[torch.cuda.CUDAGraph, Any], static: Arguments, new: Arguments) -> Any:
    """Copy new values into a graph's inputs and run it."""
    graph, output = captured
    for name, value in new.items():
        if isinstance(value, torch.Tensor):
            static[name].copy_(value)
    graph.replay()
    torch.cuda.synchronize()
    return on_cpu(output)
