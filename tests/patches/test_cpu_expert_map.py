"""Ranks with some of the experts each: what they compute adds up to what one rank has."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.marks import requires_cpu_build
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches.upstream import cpu_expert_map as patch

pytestmark = requires_cpu_build

EXPERTS, CHOSEN, TOKENS, WIDTH = 4, 2, 5, 8
# Experts 2 and 3 are the second rank's.
SECOND = torch.tensor([-1, -1, 0, 1], dtype=torch.int32)


def scaled(
    output: torch.Tensor,  # [tokens, width]
    hidden: torch.Tensor,  # [tokens, width]
    w1: torch.Tensor,  # [experts]
    ids: torch.Tensor,  # [tokens, chosen]
    weights: torch.Tensor,  # [tokens, chosen]
) -> None:
    """Stand for the kernel: an expert scales a token."""
    output.copy_(hidden * (weights * w1[ids.long()]).sum(-1, keepdim=True))


def run(
    monkeypatch: pytest.MonkeyPatch, scales: torch.Tensor, expert_map: torch.Tensor | None
) -> torch.Tensor:
    """Return what vLLM's experts give with the scales of a rank's own ones."""
    from vllm.model_executor.layers.fused_moe.experts import cpu_moe

    def kernel(output: Any, hidden: Any, w1: Any, *args: Any) -> None:
        _w2, _bias1, _bias2, weights, ids, *_ = args
        scaled(output, hidden, w1, ids, weights)

    monkeypatch.setattr(cpu_moe, "cpu_fused_moe", kernel)
    experts = object.__new__(cpu_moe.CPUUnquantizedExperts)
    quantized = type("Config", (), {"w1_bias": None, "w2_bias": None})()
    for name, value in {"_use_zentorch": False, "isa": "vec", "quant_config": quantized}.items():
        object.__setattr__(experts, name, value)
    drawn = torch.Generator().manual_seed(0)
    hidden = torch.randn(TOKENS, WIDTH, generator=drawn)
    ids = torch.stack([torch.randperm(EXPERTS, generator=drawn)[:CHOSEN] for _ in range(TOKENS)])
    output = torch.empty_like(hidden)
    experts.apply(
        output=output,
        hidden_states=hidden,
        w1=scales,
        w2=scales,
        topk_weights=torch.full((TOKENS, CHOSEN), 0.5),
        topk_ids=ids.int(),
        activation=type("Activation", (), {"value": "silu"})(),
        global_num_experts=EXPERTS,
        expert_map=expert_map,
        a1q_scale=None,
        a2_scale=None,
        workspace13=torch.empty(0),
        workspace2=torch.empty(0),
        expert_tokens_meta=None,
        apply_router_weight_on_input=False,
    )
    return output


def test_stock_fault_and_patch(take_out: TakeOut, monkeypatch: pytest.MonkeyPatch) -> None:
    scales = torch.tensor([1.0, 2.0, 3.0, 4.0])
    first = torch.tensor([0, 1, -1, -1], dtype=torch.int32)
    take_out(patch)
    whole = run(monkeypatch, scales, None)
    with pytest.raises(IndexError, match="out of bounds"):
        run(monkeypatch, scales[2:], SECOND)
    patch.apply()
    assert torch.equal(run(monkeypatch, scales, None), whole)
    parts = run(monkeypatch, scales[:2], first) + run(monkeypatch, scales[2:], SECOND)
    torch.testing.assert_close(parts, whole)
