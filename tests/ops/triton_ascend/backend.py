"""The ``triton`` backends' host code, on CPU tensors, with launches that go elsewhere.

The host code is made to believe in an NPU where it asks for the device's number of cores and the
like, so that what is launched is what an NPU would be given.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tests.ops.parity import Arguments, Result
from tests.ops.triton_ascend.launch import Launcher, Receiver
from tests.ops.triton_ascend.lowering import Variant

OPS = ("verify_greedy", "verify_sample", "verify_seeded", "verify_tree", "grammar_mask")
KERNELS = {
    "greedy": ("scan_greedy", "finalize_greedy"),
    "scan": ("scan_sampled",),
    "filters": ("filter_rows",),
    "finalize": ("finalize_sampled",),
    "seeded": ("scan_seeded", "finalize_seeded"),
    "tree": ("scan_tree", "finalize_tree"),
    "mask": ("mask_rows",),
}
# What the host code asks about a device, in triton_launch.py.
ABOUT_DEVICES = ("num_cores", "lanes_of", "on_device")
GREEDY_NAMES = ("logits", "draft_token_ids", "cu_num_draft_tokens", "max_draft_len")
FILTERS = ("top_k", "top_p", "min_p")
NPU = SimpleNamespace(type="npu", index=0)


def host(op: str) -> ModuleType:
    """Return the module of an op's host code."""
    return importlib.import_module(f"vllm_ascend_spec.ops.{op}.triton")


@contextmanager
def launching(receive: Receiver) -> Iterator[None]:
    """Let host code launch into ``receive`` for as long as the context lasts."""
    with pytest.MonkeyPatch.context() as patch:
        for name, functions in KERNELS.items():
            module = importlib.import_module(f"vllm_ascend_spec.ops.triton_kernels.{name}")
            for function in functions:
                patch.setattr(module, function, Launcher(getattr(module, function), receive))
        for op in OPS:
            for name in ABOUT_DEVICES:
                if asked := getattr(host(op), name, None):
                    patch.setattr(host(op), name, _about_an_npu(asked))
        yield


def _about_an_npu(asked: Callable[..., Any]) -> Callable[..., Any]:
    plain = getattr(asked, "__wrapped__", asked)

    def answer(*args: Any) -> Any:
        return plain(*(NPU if isinstance(arg, torch.device) else arg for arg in args))

    return answer


def verify_sample(arguments: Arguments, receive: Receiver) -> Result:
    """Run the host code of ``verify_sample``."""
    given = {**dict.fromkeys((*FILTERS, "draft_probs")), "rule": "token", **arguments}
    with launching(receive):
        return host("verify_sample").verify_sample(**given)


def verify_seeded(arguments: Arguments, receive: Receiver) -> Result:
    """Run the host code of ``verify_seeded``."""
    with launching(receive):
        return host("verify_seeded").verify_seeded(**{**dict.fromkeys(FILTERS), **arguments})


def verify_tree(
    arguments: Arguments, receive: Receiver
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Run the host code of ``verify_tree``."""
    with launching(receive):
        return host("verify_tree").verify_tree(**{**dict.fromkeys(FILTERS), **arguments})


def verify_greedy(arguments: Arguments, receive: Receiver) -> Result:
    """Run the host code of ``verify_greedy``; other arguments than its own are left out."""
    with launching(receive):
        return host("verify_greedy").verify_greedy(*(arguments[name] for name in GREEDY_NAMES))


def grammar_mask(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    bitmask: torch.Tensor,  # [num_masked, num_words]
    row_indices: torch.Tensor,  # [num_masked]
    receive: Receiver,
) -> None:
    """Run the host code of ``grammar_mask``."""
    with launching(receive):
        host("grammar_mask").grammar_mask(logits, bitmask, row_indices)


class Recorder:
    """Receives launches and runs nothing; ``variants`` are those that were launched."""

    def __init__(self) -> None:
        self.variants: dict[Variant, None] = {}

    def __call__(self, variant: Variant, grid: tuple[int, ...], values: dict[str, Any]) -> None:
        self.variants[variant] = None
