"""Small kernels of Gated DeltaNet layers, which Triton's interpreter takes too long for.

Each such layer launches them in every step, at some milliseconds each; together they took half the
time of an engine with such a target. These compute the same, and a test holds them to the
interpreter (which cuts bfloat16 off, where these round). `triton_bridge` uses them for kernels of
these names with these parameters, and interprets every other.
"""

import torch

from npu_sim.references.registry import reference


def _rows(tensor: torch.Tensor, count: int, size: int) -> torch.Tensor:
    """Give the rows that a kernel finds one behind the other, whatever the tensor's shape is."""
    return tensor.as_strided((count, size), (size, 1))


@reference("triton::l2norm_fwd_kernel2")
def l2norm(
    X: torch.Tensor,  # noqa: N803 - the kernel's name; [M, N], contiguous
    Y: torch.Tensor,  # noqa: N803 - likewise; changed in place
    eps: float,
    M: int,  # noqa: N803
    N: int,  # noqa: N803
    BD: int,  # noqa: N803
    MBLOCK: int,  # noqa: N803
) -> None:
    """Scale each row to length 1."""
    rows = _rows(X, M, N).float()
    lengths = rows.square().sum(1, keepdim=True)
    _rows(Y, M, N).copy_(rows * (lengths + eps).rsqrt())


@reference("triton::fused_gdn_gating_kernel")
def fused_gdn_gating(  # noqa: PLR0917 - the kernel's parameters
    g: torch.Tensor,  # [NUM_BATCHES, seq_len, NUM_HEADS], contiguous; changed in place
    beta_output: torch.Tensor,  # likewise
    A_log: torch.Tensor,  # noqa: N803 - the kernel's name; [NUM_HEADS]
    a: torch.Tensor,  # [NUM_BATCHES, seq_len, NUM_HEADS], contiguous
    b: torch.Tensor,  # likewise
    dt_bias: torch.Tensor,  # [NUM_HEADS]
    seq_len: int,
    NUM_HEADS: int,  # noqa: N803
    NUM_BATCHES: int,  # noqa: N803
    beta: float,
    threshold: float,
    BLK_HEADS: int,  # noqa: N803
    BLK_BATCHES: int,  # noqa: N803
    ROW_ITER: int,  # noqa: N803
) -> None:
    """Write the logarithm of each head's decay, and how much of its state is replaced."""
    shape = NUM_BATCHES * seq_len, NUM_HEADS
    x = _rows(a, *shape).float() + dt_bias.float()
    soft = torch.where(beta * x <= threshold, (1 / beta) * (1 + (beta * x).exp()).log(), x)
    _rows(g, *shape).copy_(-A_log.float().exp() * soft)
    _rows(beta_output, *shape).copy_(_rows(b, *shape).float().sigmoid())


@reference("triton::_layer_norm_fwd_1pass_kernel_npu")
def layer_norm(  # noqa: PLR0917 - the kernel's parameters
    X: torch.Tensor,  # noqa: N803 - the kernel's name; [M, groups * N], rows are contiguous
    Y: torch.Tensor,  # noqa: N803 - likewise; changed in place
    W: torch.Tensor,  # noqa: N803 - [groups * N]
    B: torch.Tensor | None,  # noqa: N803 - likewise
    Z: torch.Tensor | None,  # noqa: N803 - as X
    Mean: torch.Tensor | None,  # noqa: N803 - [groups * M], without IS_RMS_NORM; changed in place
    Rstd: torch.Tensor,  # noqa: N803 - likewise
    stride_x_row: int,
    stride_y_row: int,
    stride_z_row: int,
    M: int,  # noqa: N803
    N: int,  # noqa: N803
    eps: float,
    BLOCK_M: int,  # noqa: N803
    BLOCK_N: int,  # noqa: N803
    HAS_BIAS: bool,  # noqa: N803
    HAS_Z: bool,  # noqa: N803
    NORM_BEFORE_GATE: bool,  # noqa: N803
    IS_RMS_NORM: bool,  # noqa: N803
) -> None:
    """Normalise each group of each row, and gate it before or after."""
    groups = W.numel() // N
    shape = M, groups, N
    x = X.as_strided(shape, (stride_x_row, N, 1)).float()
    gate = None
    if HAS_Z:
        assert Z is not None
        z = Z.as_strided(shape, (stride_z_row, N, 1)).float()
        gate = z * z.sigmoid()
    if gate is not None and not NORM_BEFORE_GATE:
        x = x * gate
    if not IS_RMS_NORM:
        assert Mean is not None
        mean = x.sum(2, keepdim=True) / N
        Mean.view(groups, M).copy_(mean.squeeze(2).T)
        x = x - mean
    rstd = 1.0 / (x.square().sum(2, keepdim=True) / N + eps).sqrt()
    Rstd.view(groups, M).copy_(rstd.squeeze(2).T)
    y = x * rstd * W.float().view(groups, N)
    if HAS_BIAS:
        assert B is not None
        y += B.float().view(groups, N)
    if gate is not None and NORM_BEFORE_GATE:
        y *= gate
    Y.as_strided(shape, (stride_y_row, N, 1)).copy_(y)
