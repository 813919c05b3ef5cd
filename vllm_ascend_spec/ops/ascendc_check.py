"""Check that the built kernels run on this NPU; their launchers do not always report a failure.

A launcher that CANN's build generates returns 0 even if the kernels' binary was not registered with
the device: it prints a line, nothing runs, and results are whatever was in their memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from vllm_ascend_spec.ops.checksum import first_line

if TYPE_CHECKING:
    from vllm_ascend_spec.ops.ascendc_library import Library

NPU = "npu"
# Two answers: memory that nothing was written to cannot hold both.
ANSWERS = (2, 5)
VOCAB_SIZE = 8


def launch_problem(library: Library) -> str | None:
    """Verify two drafts on the current NPU; return None, or one line that says what is wrong.

    A launch that fails in torch_npu's task queue stops the queue and all later work. So the trial
    runs on a stream that does not use the queue.
    """
    npu: Any = torch.npu  # torch_npu puts it there
    try:
        with npu.stream(npu.SyncLaunchStream()):
            right = all(_verifies(library, token) for token in ANSWERS)
    except RuntimeError as error:
        return f"a launch failed: {first_line(error)}"
    return None if right else "a launch reported success, but computed nothing, or a wrong answer"


def _verifies(library: Library, token: int) -> bool:
    """Return whether the draft ``token`` is accepted if it is the argmax of each row."""
    logits = torch.zeros(2, VOCAB_SIZE, device=NPU)  # [num_rows, vocab_size]
    logits[:, token] = 1.0
    drafts = torch.tensor([token], dtype=torch.int32, device=NPU)  # [num_drafts]
    ends = torch.ones(1, dtype=torch.int32, device=NPU)  # [num_reqs]
    tokens, counts = library.verify_greedy(logits, drafts, ends, 1)
    return tokens.tolist() == [[token, token]] and counts.tolist() == [2]
