"""Whose drafts were accepted, in a model whose layers keep states, on the NPU.

Why: vllm-ascend 0.30.0rc2 counts accepted tokens on a stream of its own after the host has gone on
(vllm_ascend/worker/model_runner_v1.py:NPUModelRunner.sample_tokens). Without asynchronous
scheduling they are copied to the batch's rows, and the host waits for them only when it has removed
the requests that ended and moved others to their rows: those go on from the state of another
request's count.
How: the host waits before it changes the batch. It waits there for the sampled tokens anyway.
Until: vllm-ascend keeps them apart from the batch, as it does with asynchronous scheduling;
0.30.0rc2 is the newest release.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.patches.patching import Patches

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    stock = NPUModelRunner._update_states

    @functools.wraps(stock)
    def _update_states(self: Any, scheduler_output: SchedulerOutput) -> Any:
        event = self.num_accepted_tokens_event
        if event is not None and not self.use_async_scheduling:
            event.synchronize()
        return stock(self, scheduler_output)

    _patches.set(NPUModelRunner, "_update_states", _update_states)
