"""Where the state of a layer is, after a step in which drafts were accepted, on the NPU.

Why: vLLM leaves it in the block of the last accepted draft, with the inputs of the convolution at
an offset in the request's first block, and a count for the next step
(vllm/v1/worker/gpu_model_runner.py:GPUModelRunner._update_states_after_model_execute). vllm-ascend
0.30.0rc2 has the same. A step in which a request has no drafts does not read the count
(vllm_ascend/ops/gdn_attn_builder.py:AscendGDNAttentionMetadataBuilder.build), nor does one after it
was left out of a step: it then goes on from the state before the drafts. The kernel of a step with
fewer rows than tokens were accepted refuses to run.
How: before such a step the state is moved to the first block and to the beginning, and the count
is one. Steps with K drafts for every request move nothing.
Until: steps without drafts read the count, and requests keep theirs (vllm #39273, #52942).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vllm_ascend_spec.patches.cpu_accepted_states import caches_of
from vllm_ascend_spec.patches.patching import Patches

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput

_patches = Patches()
revert = _patches.revert


def goes_on_elsewhere(
    request_id: str,
    accepted: int,
    step: SchedulerOutput,
) -> bool:
    """Tell whether a request reads its state in no step, or in one that does not find it."""
    rows = len(step.scheduled_spec_decode_tokens.get(request_id, ())) + 1
    has_drafts = rows > 1 and request_id in step.num_scheduled_tokens
    return not has_drafts or accepted > rows


def ended(step: SchedulerOutput) -> set[str]:
    """Return the requests that have no state after the step before this one."""
    ended = set(step.finished_req_ids) | set(step.preempted_req_ids or ())
    return ended | set(step.scheduled_cached_reqs.resumed_req_ids)


def commit_states(runner: Any, step: SchedulerOutput) -> None:
    """Move the states that a step would not find, and set their counts to one token.

    Args:
        runner: vllm-ascend's, before it learns of the step.
        step: the step that begins.
    """
    batch = runner.input_batch
    gone = ended(step)
    if not any(
        name not in gone and goes_on_elsewhere(name, runner.num_spec_tokens + 1, step)
        for name in batch.req_ids
    ):
        return
    # The counts are on their way to the host; every step of such a model waits for them.
    runner.num_accepted_tokens_event.synchronize()
    counts = runner.num_accepted_tokens.np
    if not runner.use_async_scheduling:
        counts = batch.num_accepted_tokens_cpu
    moved = [
        index
        for index, name in enumerate(batch.req_ids)
        if counts[index] > 1
        and name not in gone
        and goes_on_elsewhere(name, int(counts[index]), step)
    ]
    if moved:
        copy([c for index in moved for c in copies_of(runner, index, int(counts[index]))], runner)
        counts[moved] = 1
        runner.has_moved_states = True


def copies_of(runner: Any, index: int, accepted: int) -> Iterator[tuple[int, int, int]]:
    """Yield the address, the new address and the size of each state of a request."""
    from vllm.model_executor.layers.mamba.mamba_utils import is_conv_state_dim_first

    assert not is_conv_state_dim_first()
    name = runner.input_batch.req_ids[index]
    first = runner.mamba_state_idx[name] if is_aligned(runner) else 0
    for group, cache, is_convolution in caches_of(runner):
        blocks = runner.requests[name].block_ids[group]
        into = cache[blocks[first]]
        source = into[accepted - 1 :] if is_convolution else cache[blocks[first + accepted - 1]]
        yield source.data_ptr(), into.data_ptr(), source.numel() * source.element_size()


def is_aligned(runner: Any) -> bool:
    """Tell whether states at the ends of blocks are kept for prefix caching."""
    return bool(runner.cache_config.mamba_cache_mode == "align")


def copy(copies: list[tuple[int, int, int]], runner: Any) -> None:
    """Copy memory of the device."""
    from vllm.v1.worker import mamba_utils

    columns = torch.from_numpy(np.array(copies, dtype=np.int64).T.copy()).pin_memory()
    mamba_utils.batch_memcpy(*columns.to(runner.device, non_blocking=True))


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    update, prepare = NPUModelRunner._update_states, NPUModelRunner._prepare_inputs

    @functools.wraps(update)
    def _update_states(self: Any, scheduler_output: SchedulerOutput) -> Any:
        if self.speculative_config is not None and self.model_config.is_hybrid:
            commit_states(self, scheduler_output)
        return update(self, scheduler_output)

    @functools.wraps(prepare)
    def _prepare_inputs(self: Any, *args: Any, **kwargs: Any) -> Any:
        prepared = prepare(self, *args, **kwargs)
        has_moved = vars(self).pop("has_moved_states", False)
        # With asynchronous scheduling it has put the sampler's counts in their place; with prefix
        # caching the counts are copied again anyway.
        if has_moved and self.use_async_scheduling and not is_aligned(self):
            self.num_accepted_tokens.copy_to_gpu()
        return prepared

    _patches.set(NPUModelRunner, "_update_states", _update_states)
    _patches.set(NPUModelRunner, "_prepare_inputs", _prepare_inputs)
