"""The gated delta rule against transformers', and a prompt's chunks against its tokens."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from transformers.models.qwen3_5.modeling_qwen3_5 import torch_recurrent_gated_delta_rule

from vllm_ascend_spec.states.gated_delta import (
    CHUNK,
    convolve,
    gates,
    normed,
    read_chunks,
    read_token,
)

NUM_HEADS, KEY_DIM, VALUE_DIM = 4, 16, 24


def inputs(num_tokens: int) -> dict[str, torch.Tensor]:
    """Return what a layer reads."""
    torch.manual_seed(num_tokens)
    return {
        "q": torch.randn(num_tokens, NUM_HEADS, KEY_DIM),
        "k": torch.randn(num_tokens, NUM_HEADS, KEY_DIM),
        "v": torch.randn(num_tokens, NUM_HEADS, VALUE_DIM),
        "g": -torch.rand(num_tokens, NUM_HEADS),
        "beta": torch.rand(num_tokens, NUM_HEADS),
    }


def ready(given: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return them with keys and queries as the rule reads them."""
    scale = KEY_DIM**-0.5
    return normed(given["q"]) * scale, normed(given["k"]), given["v"], given["g"], given["beta"]


def by_token(
    given: dict[str, torch.Tensor], state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    outputs = []
    for one in zip(*ready(given), strict=True):
        output, state = read_token(*one, state)
        outputs.append(output)
    return torch.stack(outputs), state


@pytest.mark.parametrize("num_tokens", [1, CHUNK, CHUNK + 1, 150])
def test_tokens_are_read_as_transformers_reads_them(num_tokens: int) -> None:
    given, state = inputs(num_tokens), torch.randn(NUM_HEADS, KEY_DIM, VALUE_DIM)
    theirs = torch_recurrent_gated_delta_rule(
        given["q"][None],
        given["k"][None],
        given["v"][None],
        g=given["g"][None],
        beta=given["beta"][None],
        initial_state=state[None],
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    for ours, expected in zip(by_token(given, state), theirs, strict=True):
        torch.testing.assert_close(ours, expected[0], rtol=0, atol=2e-6)


@pytest.mark.parametrize("num_tokens", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 150])
def test_chunks_are_what_tokens_are(num_tokens: int) -> None:
    given, state = inputs(num_tokens), torch.randn(NUM_HEADS, KEY_DIM, VALUE_DIM)
    expected = by_token(given, state)
    for ours, theirs in zip(read_chunks(*ready(given), state), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_rows", [1, 2, 9])
@pytest.mark.parametrize("has_bias", [False, True])
def test_convolution(num_rows: int, has_bias: bool) -> None:
    x, before, weight = torch.randn(num_rows, 6), torch.randn(3, 6), torch.randn(6, 4)
    bias = torch.randn(6) if has_bias else None
    whole = torch.cat([before, x]).T[None]
    expected = F.conv1d(whole, weight[:, None], bias, groups=6)[0].T
    torch.testing.assert_close(convolve(x, before, weight, bias), expected)


def test_gates_are_float32_whatever_the_model_is() -> None:
    decay, shift, a, b = (torch.randn(NUM_HEADS).bfloat16() for _ in range(4))
    g, beta = gates(decay, shift, a[None], b[None])
    assert g.dtype == beta.dtype == torch.float32
    assert (g <= 0).all()
    assert ((beta > 0) & (beta < 1)).all()
