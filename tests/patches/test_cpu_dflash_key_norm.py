"""The norm of a DFlash head's keys on a CPU, compared with vLLM's own norm layer by layer."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from vllm import _custom_ops as ops
from vllm.model_executor.models.qwen3_dflash import DFlashQwen3Model
from vllm.platforms import current_platform

from tests.marks import requires_cpu_build
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches import cpu_dflash_key_norm as patch

pytestmark = requires_cpu_build
LAYERS, TOKENS, HEADS, WIDTH, EPSILON = 3, 5, 2, 32, 1e-5


def layers_off() -> list[bool]:
    """Return of which layers the keys are not what vLLM's norm of one layer makes of them."""
    current_platform.import_kernels()
    torch.manual_seed(0)
    keys, weights = torch.randn(LAYERS, TOKENS, HEADS, WIDTH), torch.rand(LAYERS, WIDTH)
    model = SimpleNamespace(_k_norm_weights=weights, _rms_norm_eps=EPSILON)
    found = DFlashQwen3Model._normalize_context_k(model, keys)
    expected = torch.empty_like(keys)
    for layer in range(LAYERS):
        ops.rms_norm(expected[layer], keys[layer], weights[layer], EPSILON)
    return [not torch.allclose(*pair, atol=1e-6) for pair in zip(found, expected, strict=True)]


def test_stock_fault_and_patch(take_out: TakeOut) -> None:
    take_out(patch)
    assert layers_off() == [False, True, True]
    patch.apply()
    assert layers_off() == [False, False, False]
    patch.revert()
    assert layers_off() == [False, True, True]
