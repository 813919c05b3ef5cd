"""A Gated DeltaNet (2412.06464) of one request, in float32.

Every sum has an order that depends neither on the batch nor on how many rows a request has: a
verified row has the bits of the row of a step without drafts.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

# Tokens of a prompt that are read at once.
CHUNK = 64
# As in transformers and in vLLM's kernels for a GPU; its C++ kernels have 1e-5.
EPS = 1e-6


def convolve(
    x: torch.Tensor,  # [num_rows, width]
    before: torch.Tensor,  # [kernel - 1, width], the inputs before x, oldest first
    weight: torch.Tensor,  # [width, kernel]
    bias: torch.Tensor | None,  # [width]
) -> torch.Tensor:
    """Return a causal convolution of each channel, float32 [num_rows, width]."""
    inputs, weights = torch.cat([before.to(x.dtype), x]).float(), weight.float()
    found = inputs[: len(x)] * weights[:, 0]
    for tap in range(1, weights.shape[1]):
        found = found + inputs[tap : tap + len(x)] * weights[:, tap]
    return found if bias is None else found + bias.float()


def normed(x: torch.Tensor) -> torch.Tensor:
    """Divide the vectors of the last dimension by their length."""
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + EPS)


def read_token(
    q: torch.Tensor,  # [num_heads, key_dim], normed and scaled
    k: torch.Tensor,  # [num_heads, key_dim], normed
    v: torch.Tensor,  # [num_heads, value_dim]
    g: torch.Tensor,  # [num_heads], the logarithm of the decay
    beta: torch.Tensor,  # [num_heads]
    state: torch.Tensor,  # [num_heads, key_dim, value_dim]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply the gated delta rule to one token.

    Returns:
        The output [num_heads, value_dim] and the state after it.
    """
    state = state * g.exp()[:, None, None]
    known = (state * k[:, :, None]).sum(1)
    state = state + k[:, :, None] * ((v - known) * beta[:, None])[:, None, :]
    return (state * q[:, :, None]).sum(1), state


def read_chunks(
    q: torch.Tensor,  # [num_tokens, num_heads, key_dim], normed and scaled
    k: torch.Tensor,  # [num_tokens, num_heads, key_dim], normed
    v: torch.Tensor,  # [num_tokens, num_heads, value_dim]
    g: torch.Tensor,  # [num_tokens, num_heads], the logarithm of the decay
    beta: torch.Tensor,  # [num_tokens, num_heads]
    state: torch.Tensor,  # [num_heads, key_dim, value_dim]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply the rule to a prompt, :data:`CHUNK` tokens at a time.

    With G the sum of g in the chunk and S the state before it, what is written solves
    ``u_j = beta_j (v_j - e^{G_j} S^T k_j - sum_{i<j} e^{G_j - G_i} (k_j . k_i) u_i)``.

    Returns:
        The outputs [num_tokens, num_heads, value_dim] and the state after the last token.
    """
    outputs = []
    for first in range(0, len(q), CHUNK):
        some = slice(first, first + CHUNK)
        qc, kc, vc = (x[some].transpose(0, 1) for x in (q, k, v))
        sums, betas = g[some].T.cumsum(-1), beta[some].T
        length = qc.shape[1]
        earlier = torch.ones(length, length, dtype=torch.bool).tril()
        decay = (sums[:, :, None] - sums[:, None, :]).masked_fill(~earlier, -torch.inf).exp()
        since_state = sums.exp()[:, :, None]
        system = betas[:, :, None] * decay * (kc @ kc.transpose(1, 2))
        right = betas[:, :, None] * (vc - since_state * (kc @ state))
        # It takes the diagonal for ones.
        written = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
        outputs.append(since_state * (qc @ state) + (decay * (qc @ kc.transpose(1, 2))) @ written)
        until_end = (sums[:, -1:] - sums).exp()[:, :, None]
        state = sums[:, -1].exp()[:, None, None] * state
        state = state + (kc * until_end).transpose(1, 2) @ written
    return torch.cat(outputs, 1).transpose(0, 1), state


def gates(
    layer_decay: torch.Tensor,  # [num_heads], A_log of the layer
    shift: torch.Tensor,  # [num_heads], dt_bias of the layer
    a: torch.Tensor,  # [num_tokens, num_heads]
    b: torch.Tensor,  # [num_tokens, num_heads]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logarithms of the decays and the betas, float32 [num_tokens, num_heads].

    They are worked out in float64: PyTorch's functions have other last bits where a batch ends.
    """
    g = -layer_decay.double().exp() * F.softplus(a.double() + shift.double())
    return g.float(), b.double().sigmoid().float()
