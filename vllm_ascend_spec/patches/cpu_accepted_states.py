"""Where the state of a layer is, after a step in which drafts were accepted, on a CPU.

Why: vLLM leaves it in the block of the last accepted draft, with the inputs of the convolution at
an offset in the request's first block, and a count that the next step reads
(vllm/v1/worker/gpu_model_runner.py:GPUModelRunner._update_states_after_model_execute). A step
without drafts does not read it (vllm/v1/attention/backends/gdn_attn.py), nor does one after a
request was left out of a step: it then goes on from the state before the drafts.
How: after each step it is moved to the first block and to the beginning, and the count is one.
Until: steps without drafts read the count, and requests keep theirs (vllm #39273, #52942).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from vllm_ascend_spec.patches.patching import Patches

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput

_patches = Patches()
revert = _patches.revert


def commit_states(runner: Any, num_reqs: int) -> None:
    """Move the states of requests with accepted drafts, and set the counts to one token.

    Args:
        runner: vLLM's, on a CPU, right after it has counted what was accepted.
        num_reqs: requests of the batch.
    """
    counts = runner.input_batch.num_accepted_tokens_cpu
    moved = [index for index in range(num_reqs) if counts[index] > 1]
    if not moved:
        return
    for group, cache, is_convolution in caches_of(runner):
        for index in moved:
            first, *_, last = blocks_of(runner, group, index, int(counts[index]))
            if is_convolution:
                shift(cache[first], int(counts[index]) - 1)
            else:
                cache[first] = cache[last]
    for index in moved:
        counts[index] = 1
        runner.num_accepted_tokens.np[index] = 1
    runner.num_accepted_tokens.copy_to_gpu(num_reqs)


def caches_of(runner: Any) -> Iterator[tuple[int, torch.Tensor, bool]]:
    """Yield each layer's states: its cache group, a cache, and whether a convolution reads that."""
    from vllm.model_executor.layers.mamba.mamba_utils import get_conv_copy_spec
    from vllm.v1.worker import mamba_utils

    layers = runner.compilation_config.static_forward_context
    copies = runner._get_mamba_state_copy_funcs()
    groups = mamba_utils.get_mamba_group_ids(mamba_utils.get_mamba_groups(runner.kv_cache_config))
    for number in groups:
        group = runner.kv_cache_config.kv_cache_groups[number]
        for name in group.layer_names:
            kind = mamba_utils._get_mamba_spec_for_layer(group, name).mamba_type
            for cache, copy in zip(layers[name].kv_cache, copies[kind], strict=True):
                yield number, cache, copy is get_conv_copy_spec


def blocks_of(runner: Any, group: int, index: int, accepted: int) -> list[int]:
    """Return a request's blocks of a step: its text's, and one for each accepted draft."""
    batch = runner.input_batch
    is_aligned = runner.cache_config.mamba_cache_mode == "align"
    first = runner.mamba_state_idx[batch.req_ids[index]] if is_aligned else 0
    table = batch.block_table[group].get_device_tensor(index + 1)
    return table[index, first : first + accepted].tolist()


def shift(
    inputs: torch.Tensor,  # [kernel - 1 + K, width], or with the two swapped
    count: int,
) -> None:
    """Drop the oldest inputs of a convolution."""
    from vllm.model_executor.layers.mamba.mamba_utils import is_conv_state_dim_first

    by_row = inputs.T if is_conv_state_dim_first() else inputs
    by_row[: len(by_row) - count] = by_row[count:].clone()


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    stock = CPUModelRunner._update_states_after_model_execute

    def _update_states_after_model_execute(
        self: Any,
        output_token_ids: torch.Tensor,  # [num_reqs, K + 1], -1 behind the last accepted token
        scheduler_output: SchedulerOutput,
    ) -> None:
        stock(self, output_token_ids, scheduler_output)
        if self.speculative_config is not None and self.model_config.is_hybrid:
            commit_states(self, len(output_token_ids))

    name = "_update_states_after_model_execute"
    _patches.set(CPUModelRunner, name, _update_states_after_model_execute)
