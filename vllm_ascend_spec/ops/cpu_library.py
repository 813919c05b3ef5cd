"""The C++ backend's library: built when the package is installed, loaded when it is first used."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import torch

from vllm_ascend_spec.ops.checksum import file_problem, first_line

HERE = Path(__file__).parent
LIBRARY = HERE / "_cpu.abi3.so"
PROBLEM = HERE / "_cpu.problem.txt"
REMEDY = "install vllm-ascend-spec again, with pip's --no-deps --force-reinstall"


@functools.cache
def library_problem() -> str | None:
    """Load the library; return None, or one line why it cannot be used."""
    if not LIBRARY.is_file():
        note = PROBLEM.read_text(errors="replace").strip() if PROBLEM.is_file() else ""
        return f"the C++ backend was not built: {note or f'remedy: {REMEDY}'}"
    try:
        found = file_problem(LIBRARY)
        if found is None:
            torch.ops.load_library(LIBRARY)
    except (OSError, RuntimeError) as error:
        found = first_line(error)
    return None if found is None else f"the C++ backend cannot be loaded: {found}; remedy: {REMEDY}"


def problem(device_type: str) -> str | None:
    """Return why the backend cannot run on a device, or None if it can."""
    if device_type != "cpu":
        return f"the C++ backend runs on CPU tensors, these are on {device_type}"
    return library_problem()


def instruction_set() -> str:
    """Return which build of the arithmetic runs here: portable, x86_64_v3 or x86_64_v4."""
    name = ctypes.CDLL(str(LIBRARY)).vllm_ascend_spec_cpu_isa
    name.restype = ctypes.c_char_p
    return str(name().decode())


def contiguous(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """Return the tensor, or a copy of it without gaps."""
    return None if tensor is None else tensor.contiguous()


def new_outputs(
    cu_num_draft_tokens: torch.Tensor,  # [num_reqs]
    max_draft_len: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return int32 tensors [num_reqs, max_draft_len + 1] and [num_reqs] for the results."""
    num_reqs = cu_num_draft_tokens.shape[0]
    tokens = torch.empty((num_reqs, max_draft_len + 1), dtype=torch.int32)
    return tokens, torch.empty(num_reqs, dtype=torch.int32)
