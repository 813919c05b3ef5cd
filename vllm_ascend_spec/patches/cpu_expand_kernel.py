"""``expand_batch_to_tokens`` of vLLM on the CPU.

Why: the C++ fall-back of ``expand_kernel`` (vllm/utils/cpu_triton_utils.py:_expand_kernel_impl)
writes to the copy that ``_ensure_int64`` makes of every tensor that is not int64. Temperature,
top-p (float32) and top-k (int32) of the draft rows stay uninitialised memory, without an error.
vLLM 0.30 does not even get there: the dispatcher (vllm/v1/sample/rejection_sampler.py:_expand)
keeps its Triton kernel, and the fall-back names a parameter ``input_val`` where ``input`` is
passed.
How: a kernel in PyTorch that writes the tensor it was given.
Until: the fall-back writes its output. In 0.31 to 0.33 the dispatcher does call it, but it still
leaves float32 and int32 outputs unwritten, so sampling with drafts is wrong there.
"""

from __future__ import annotations

import torch

from vllm_ascend_spec.patches.patching import Launchable, Patches

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
    """Repeat each request's value for each of its tokens, replacing one value by another."""
    counts = torch.diff(cu_num_tokens.long(), prepend=cu_num_tokens.new_zeros(1).long())
    values = input.masked_fill(input == replace_from, replace_to)
    output.copy_(values.repeat_interleave(counts, output_size=output.shape[0]))


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.v1.sample import rejection_sampler as stock

    _patches.set_kernel(stock._expand, Launchable(expand))
