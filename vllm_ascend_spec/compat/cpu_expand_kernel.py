"""``expand_batch_to_tokens`` of vLLM 0.30.0 on the CPU.

Why: the dispatcher ``_expand`` (v1/sample/rejection_sampler.py) keeps its Triton kernel; its C++
fall-back names a parameter ``input_val`` where ``input`` is passed, and writes to the copy that
``_ensure_int64`` made (utils/cpu_triton_utils.py:408). Temperature, top-p (float32) and top-k
(int32) of the draft rows would be uninitialised memory: silent garbage.
How: a kernel in PyTorch that writes the tensor it was given.
Until: vLLM fixes both (0.32 works).
"""

from __future__ import annotations

import torch

from vllm_ascend_spec.compat.patching import Patches

_patches = Patches()
revert = _patches.revert


def expand(
    output: torch.Tensor,  # [num_tokens]
    input: torch.Tensor,  # [num_reqs]
    cu_num_tokens: torch.Tensor,  # [num_reqs], inclusive
    replace_from: float,
    replace_to: float,
    MAX_NUM_TOKENS: int | None = None,
) -> None:
    """Repeat each request's value over its tokens, replacing one value by another."""
    counts = torch.diff(cu_num_tokens.long(), prepend=cu_num_tokens.new_zeros(1).long())
    values = input.masked_fill(input == replace_from, replace_to)
    output.copy_(values.repeat_interleave(counts, output_size=output.shape[0]))


def apply() -> None:
    """Install the mend once."""
    if _patches:
        return
    from vllm.utils.cpu_triton_utils import _FuncWrapper
    from vllm.v1.sample import rejection_sampler as stock

    _patches.set_kernel(stock._expand, _FuncWrapper(expand))
