"""Where Triton kernels can run, how the work is cut up, and that nothing waits for the device."""

from __future__ import annotations

import builtins
import itertools
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.ops.batches import RULES, make_drafts, make_sampled
from tests.ops.triton.interpreter import INTERPRETED
from vllm_ascend_spec.errors import BackendUnavailableError
from vllm_ascend_spec.ops import grammar_mask, triton_launch, verify_greedy
from vllm_ascend_spec.ops.grammar_mask.triton import grammar_mask as mask_with_triton
from vllm_ascend_spec.ops.tree_attention import triton as attention
from vllm_ascend_spec.ops.triton_launch import make_plan, problem
from vllm_ascend_spec.ops.verify_greedy.triton import verify_greedy as greedy_with_triton
from vllm_ascend_spec.ops.verify_sample.triton import verify_sample as sample_with_triton

SHAPES = list(
    itertools.product((1, 3, 64, 1000), (0, 1, 4, 70), (1, 100, 32_001, 151_936, 1_000_000))
)
compiled = pytest.mark.skipif(INTERPRETED, reason="needs Triton without its interpreter")


@pytest.mark.parametrize(("num_reqs", "max_draft_len", "vocab"), SHAPES)
def test_plans_cover_every_token_once(num_reqs: int, max_draft_len: int, vocab: int) -> None:
    plan = make_plan(num_reqs, max_draft_len, vocab, num_cores=132)
    requests, positions, splits = plan.grid
    assert (requests, positions) == (num_reqs, max_draft_len + 1)
    assert (plan.num_chunks - 1) * plan.chunk < vocab <= plan.num_chunks * plan.chunk
    # Each split has a chunk to do, and together they do all.
    assert (splits - 1) * plan.chunks_per_split < plan.num_chunks
    assert splits * plan.chunks_per_split >= plan.num_chunks
    assert plan.num_chunks <= triton_launch.MOST_CHUNKS
    assert plan.positions > max_draft_len
    for number in (plan.side, plan.positions, plan.padded_chunks, plan.tile(plan.num_chunks)):
        assert number & (number - 1) == 0


def test_a_single_request_keeps_the_device_busy() -> None:
    plan = make_plan(1, 4, 151_936, num_cores=132)
    assert 5 * plan.grid[2] > 132


def test_a_large_batch_does_not_crowd_the_device() -> None:
    assert make_plan(256, 4, 151_936, num_cores=132).grid[2] == 1


@pytest.mark.parametrize(
    ("num_programs", "splits"), [(1, 16), (16, 16), (17, 8), (40, 4), (132, 2), (133, 1), (9999, 1)]
)
def test_few_requests_attend_with_many_programs(
    num_programs: int, splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "num_cores", lambda _: 132)
    assert attention.splits_of(num_programs, torch.device("cuda")) == splits


def test_too_large_a_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="vocabulary of 16777217, at most 16777216"):
        make_plan(1, 0, 2**24 + 1, num_cores=1)


def without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def fail(name: str, *args: Any) -> Any:
        if name.partition(".")[0] == "triton":
            raise ImportError("no module named triton")
        return real_import(name, *args)

    monkeypatch.setattr(builtins, "__import__", fail)


@pytest.mark.parametrize("device", ["cpu", "cuda", "npu"])
def test_a_missing_triton_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    without_triton(monkeypatch)
    found = problem(device)
    assert found is not None
    assert "install the package triton" in found


@compiled
def test_on_a_cpu_the_remedy_is_the_interpreter() -> None:
    pytest.importorskip("triton", reason="needs the package triton")
    assert "TRITON_INTERPRET=1" in (problem("cpu") or "")
    with pytest.raises(BackendUnavailableError, match="TRITON_INTERPRET=1"):
        verify_greedy(**make_drafts([1], 5, 1), backend="triton")
    with pytest.raises(BackendUnavailableError, match="TRITON_INTERPRET=1"):
        grammar_mask(
            torch.zeros(1, 5), torch.zeros(1, 1).int(), torch.zeros(1).int(), backend="triton"
        )


@compiled
@pytest.mark.parametrize(
    ("device", "backends", "remedy"),
    [
        ("cuda", {"nvidia"}, None),
        ("npu", {"ascend"}, None),
        ("cuda", {"ascend"}, "install triton"),
        ("npu", {"nvidia", "amd"}, "install triton-ascend"),
        ("xpu", {"nvidia"}, "TRITON_INTERPRET=1"),
    ],
)
def test_a_device_needs_its_compiler(
    monkeypatch: pytest.MonkeyPatch, device: str, backends: set[str], remedy: str | None
) -> None:
    pytest.importorskip("triton", reason="needs the package triton")
    monkeypatch.setattr("triton.backends.backends", dict.fromkeys(backends))
    found = problem(device)
    assert found is None if remedy is None else remedy in (found or "")


class Recorder:
    """Stands in for a kernel and notes its grids."""

    def __init__(self) -> None:
        self.grids: list[tuple[int, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        self.grids.append(grid)
        return lambda *args, **kwargs: None


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Put one fake in the place of all kernels."""
    recorder = Recorder()
    kernels = {
        "greedy": ("scan_greedy", "finalize_greedy"),
        "scan": ("scan_sampled",),
        "filters": ("filter_rows",),
        "finalize": ("finalize_sampled",),
        "mask": ("mask_rows",),
    }
    for module, names in kernels.items():
        fake = SimpleNamespace(**dict.fromkeys(names, recorder))
        monkeypatch.setitem(sys.modules, f"vllm_ascend_spec.ops.triton_kernels.{module}", fake)
    return recorder


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("filters", [(), ("top_k", "top_p", "min_p")])
@pytest.mark.parametrize("with_draft_probs", [False, True])
def test_sampled_verification_looks_at_shapes_only(
    recorder: Recorder, rule: str, filters: tuple[str, ...], with_draft_probs: bool
) -> None:
    """A fake tensor has no values: reading one, as ``.item()`` does, would raise."""
    arguments = {"top_k": None, "top_p": None, "min_p": None, "draft_probs": None, "rule": rule}
    arguments |= make_sampled([2, 0, 3], 9, 1, filters=filters, with_draft_probs=with_draft_probs)
    with FakeTensorMode() as mode:
        for name, value in arguments.items():
            if isinstance(value, torch.Tensor):
                arguments[name] = mode.from_tensor(value)
        tokens, counts = sample_with_triton(**arguments)
    assert (tokens.shape, counts.shape) == ((3, 4), (3,))
    assert [grid[:1] for grid in recorder.grids] == [(3,), (3,)]


def test_greedy_verification_and_masking_look_at_shapes_only(recorder: Recorder) -> None:
    arguments = make_drafts([2, 0, 3], 9, 1)
    with FakeTensorMode() as mode:
        logits, *rest = (
            mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
            for value in arguments.values()
        )
        greedy_with_triton(logits, *rest)
        mask_with_triton(logits, logits.new_zeros((8, 1)).int(), logits.new_zeros((8,)).int())
    assert [grid[0] for grid in recorder.grids] == [3, 3, 8]
