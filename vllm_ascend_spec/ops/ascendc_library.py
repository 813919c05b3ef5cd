"""The AscendC kernels' library: built for one SoC, or emulated on a CPU (``ops/emulator``).

An op's ``ascendc.py`` gets the :class:`Library` that runs its kernel from :func:`library`. On an
NPU this is what ``python -m vllm_ascend_spec.ops.build_ascendc`` built. A substitute takes its
place if :func:`use` sets one, or if the environment variable
``VLLM_ASCEND_SPEC_ASCENDC=module:function`` names a function that returns one. That is how tests
and the simulated NPU run the kernels in the emulator (``ops/emulator/library.py``), in every
process of an engine.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch

from vllm_ascend_spec.errors import BackendUnavailableError
from vllm_ascend_spec.ops.ascendc_check import launch_problem
from vllm_ascend_spec.ops.checksum import file_problem, first_line

NAMESPACE = "vllm_ascend_spec_npu"
BUILT = Path(__file__).parent / "_ascendc"
LIBRARY = BUILT / "libvllm_ascend_spec_npu.so"
SOC = BUILT / "soc.txt"
EMULATOR_VARIABLE = "VLLM_ASCEND_SPEC_ASCENDC"
RULES = {"token": 0, "block": 1}
REMEDY = "run python -m vllm_ascend_spec.ops.build_ascendc --soc SOC in a checkout, with CANN"
# Prefixes of chip names; chips with the same prefix run the same kernels.
FAMILIES = ("ascend910b", "ascend910_93")

Outputs = tuple[torch.Tensor, torch.Tensor]
TreeOutputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Library(Protocol):
    """Runs the kernels. Arguments are those of the ops, contiguous where the ops say so."""

    def verify_greedy(self, *arguments: Any) -> Outputs:
        """Return the op's results for ``(logits, drafts, cu_num_draft_tokens, max_draft_len)``."""

    def verify_sample(self, *arguments: Any, **options: Any) -> Outputs:
        """Return the op's results; ``options`` are its keyword arguments."""

    def verify_seeded(self, *arguments: Any, **options: Any) -> Outputs:
        """Return the op's results; ``options`` are its keyword arguments."""

    def verify_tree(self, *arguments: Any, **options: Any) -> TreeOutputs:
        """Return the op's results; ``options`` are its keyword arguments."""

    def grammar_mask(self, *arguments: Any) -> None:
        """Modify the first of ``(logits, bitmask, row_indices)`` in place."""


_emulator: list[Library] = []


@contextlib.contextmanager
def use(emulator: Library) -> Iterator[None]:
    """Within the ``with`` block, let ``ascendc`` use ``emulator``, for tensors on any device."""
    _emulator.append(emulator)
    try:
        yield
    finally:
        _emulator.pop()


def library(device_type: str) -> Library:
    """Return the library that runs the kernels for tensors on a device.

    Raises:
        BackendUnavailableError: there is none; the message says why and gives the remedy.
    """
    if _emulator:
        return _emulator[-1]
    if named := os.environ.get(EMULATOR_VARIABLE):
        return _named(named)
    if found := problem(device_type):
        raise BackendUnavailableError(found)
    return _Built()


def problem(device_type: str) -> str | None:
    """Return why the backend cannot run on a device, or None if it can."""
    if _emulator:
        return None
    if named := os.environ.get(EMULATOR_VARIABLE):
        return _emulator_problem(named)
    if device_type != "npu":
        return f"the AscendC kernels run on an NPU, these tensors are on {device_type}"
    return library_problem()


@functools.cache
def library_problem() -> str | None:
    """Load the built library and try it; return None, or one line why it cannot be used."""
    device = _device_name()
    if found := _chip_problem(device):
        return found
    if not LIBRARY.is_file():
        return f"the AscendC kernels were not built; remedy: {_remedy(device)}"
    built_for = SOC.read_text().strip() if SOC.is_file() else ""
    if found := _soc_problem(built_for, device):
        return found
    if found := _load_problem():
        return f"the AscendC kernels cannot be loaded: {found}; remedy: {_remedy(device)}"
    if found := launch_problem(_Built()):
        return f"the AscendC kernels do not run: {found}; remedy: {_remedy(device)}"
    return None


def _load_problem() -> str | None:
    """Load the library unless it is damaged; return what is wrong, or None."""
    try:
        # The first library loads a second one, which holds the kernels.
        for path in sorted(LIBRARY.parent.glob("*.so")):
            if found := file_problem(path):
                return found
        torch.ops.load_library(LIBRARY)
    except (OSError, RuntimeError) as error:
        return first_line(error)
    return None


def _remedy(device: str) -> str:
    return REMEDY.replace("SOC", device.lower()) if device else REMEDY


def _family(soc: str) -> str | None:
    return next((family for family in FAMILIES if soc.lower().startswith(family)), None)


def _chip_problem(device: str) -> str | None:
    if not device or _family(device):
        return None
    families = " and ".join(f"{family.capitalize()}*" for family in FAMILIES)
    return f"the AscendC kernels are for {families} (Atlas A2 and A3), but this is an {device}"


def _device_name() -> str:
    npu: Any = getattr(torch, "npu", None)
    return "" if npu is None else str(npu.get_device_name())


def _soc_problem(built_for: str, device: str) -> str | None:
    """Return why kernels for one SoC do not run on another; an unknown device passes."""
    family = _family(device)
    if family is None or built_for.lower().startswith(family):
        return None
    return (
        f"the AscendC kernels were built for {built_for or 'an unknown SoC'}, this is a {device}; "
        f"remedy: {_remedy(device)}"
    )


class _Built:
    """The library's ops, which its C++ part registers for NPU tensors."""

    def __init__(self) -> None:
        self._ops: Any = getattr(torch.ops, NAMESPACE)

    def verify_greedy(self, *arguments: Any) -> Outputs:
        outputs: Outputs = self._ops.verify_greedy.default(*arguments)
        return outputs

    def verify_sample(self, *arguments: Any, **options: Any) -> Outputs:
        options["block_rule"] = bool(RULES[options.pop("rule")])
        outputs: Outputs = self._ops.verify_sample.default(*arguments, **options)
        return outputs

    def verify_seeded(self, *arguments: Any, **options: Any) -> Outputs:
        outputs: Outputs = self._ops.verify_seeded.default(*arguments, **options)
        return outputs

    def verify_tree(self, *arguments: Any, **options: Any) -> TreeOutputs:
        outputs: TreeOutputs = self._ops.verify_tree.default(*arguments, **options)
        return outputs

    def grammar_mask(self, *arguments: Any) -> None:
        self._ops.grammar_mask.default(*arguments)


@functools.cache
def _emulator_problem(named: str) -> str | None:
    try:
        _named(named)
    except (ImportError, AttributeError, ValueError) as error:
        return f"{EMULATOR_VARIABLE}={named}: {error}; valid: module:function"
    return None


@functools.cache
def _named(named: str) -> Library:
    module, name = named.split(":")
    library: Library = getattr(importlib.import_module(module), name)()
    return library
