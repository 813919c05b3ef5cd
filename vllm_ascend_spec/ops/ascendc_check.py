"""Check that the built kernels run on this NPU; their launchers do not always report a failure.

A launcher that CANN's build generates returns 0 even if the kernels' binary was not registered with
the device: it prints a line, nothing runs, and results are whatever was in their memory.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from vllm_ascend_spec.ops.checksum import first_line

if TYPE_CHECKING:
    from vllm_ascend_spec.ops.ascendc_library import Library

NPU = "npu"
# Two answers: memory that nothing was written to cannot hold both.
ANSWERS = (2, 5)
VOCAB_SIZE = 8
# With equal logits the noise alone decides between this many tokens, for each of these seeds.
NOISY_VOCAB_SIZE = 2000
SEEDS = (0, 1, -1, 2**31, 2**62 + 12345, -(2**63))


def launch_problem(library: Library) -> str | None:
    """Verify two drafts on the current NPU; return None, or one line that says what is wrong.

    A launch that fails in torch_npu's task queue stops the queue and all later work. So the trial
    runs on a stream that does not use the queue.
    """
    try:
        with _without_queue(NPU):
            right = all(_verifies(library, token) for token in ANSWERS)
    except RuntimeError as error:
        return f"a launch failed: {first_line(error)}"
    return None if right else "a launch reported success, but computed nothing, or a wrong answer"


def noise_problem(library: Library, device: str) -> str | None:
    """Sample on the current device; return None, or one line if the kernels' noise is wrong.

    The random generator needs products of int32 that wrap around, which the documentation of the
    vector unit does not promise.
    """
    from vllm_ascend_spec.ops.verify_seeded.reference import verify_seeded

    count = len(SEEDS)
    drafts = torch.zeros(0, dtype=torch.int32)
    ends = torch.zeros(count, dtype=torch.int32)
    options = {
        "temperature": torch.ones(count),
        **dict.fromkeys(("top_k", "top_p", "min_p")),
        "seeds": torch.tensor(SEEDS),
        "positions": torch.arange(count),
    }
    logits = torch.zeros(count, NOISY_VOCAB_SIZE)  # [num_rows, vocab_size]
    expected, _ = verify_seeded(logits, drafts, ends, 0, **options)
    given = {name: None if x is None else x.to(device) for name, x in options.items()}
    try:
        with _without_queue(device):
            batch = (logits.to(device), drafts.to(device), ends.to(device))
            tokens = library.verify_seeded(*batch, 0, **given)[0].cpu()
    except RuntimeError as error:
        return f"a launch of verify_seeded failed: {first_line(error)}"
    if torch.equal(tokens, expected):
        return None
    return "verify_seeded makes wrong random numbers on this NPU"


def _without_queue(device: str) -> AbstractContextManager[Any]:
    """Return a context in which launches wait for no other and report their own failures."""
    if device != NPU:
        return nullcontext()
    npu: Any = torch.npu  # torch_npu puts it there
    stream: AbstractContextManager[Any] = npu.stream(npu.SyncLaunchStream())
    return stream


def _verifies(library: Library, token: int) -> bool:
    """Return whether the draft ``token`` is accepted if it is the argmax of each row."""
    logits = torch.zeros(2, VOCAB_SIZE, device=NPU)  # [num_rows, vocab_size]
    logits[:, token] = 1.0
    drafts = torch.tensor([token], dtype=torch.int32, device=NPU)  # [num_drafts]
    ends = torch.ones(1, dtype=torch.int32, device=NPU)  # [num_reqs]
    tokens, counts = library.verify_greedy(logits, drafts, ends, 1)
    return tokens.tolist() == [[token, token]] and counts.tolist() == [2]
