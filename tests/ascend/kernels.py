"""Our AscendC kernels as ops of the simulated NPU: the emulator runs their source on its memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from npu_sim.launch import as_device_op

from ops.emulator.library import Emulator
from tests.ascend.environment import KERNEL_CHECKS
from tests.ops.ascendc.kernels import make_emulator
from tests.ops.batches import Arguments
from vllm_ascend_spec.ops import OPS
from vllm_ascend_spec.ops.ascendc_library import NAMESPACE, Outputs, TreeOutputs

# What VLLM_ASCEND_SPEC_ASCENDC names.
STAND_IN = f"{__name__}:library"
NPU = torch.device("npu")


class DeviceEmulator:
    """The emulator, each launch one op of the device: counted, and on the tape of a graph.

    See :class:`~vllm_ascend_spec.ops.ascendc_library.Library`.

    Args:
        emulator: runs the kernels; its checks decide whether a broken rule of the hardware raises.
    """

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        self._launch: dict[str, Callable[..., Any]] = {
            op.name: as_device_op(
                f"{NAMESPACE}::{op.name}", getattr(emulator, op.name), self._traffic
            )
            for op in OPS
        }

    def verify_greedy(self, *arguments: Any) -> Outputs:
        """Launch the kernel of ``verify_greedy``."""
        outputs: Outputs = self._launch["verify_greedy"](*arguments)
        return outputs

    def verify_sample(self, *arguments: Any, **options: Any) -> Outputs:
        """Launch the kernel of ``verify_sample``."""
        outputs: Outputs = self._launch["verify_sample"](*arguments, **options)
        return outputs

    def verify_seeded(self, *arguments: Any, **options: Any) -> Outputs:
        """Launch the kernel of ``verify_seeded``."""
        outputs: Outputs = self._launch["verify_seeded"](*arguments, **options)
        return outputs

    def verify_tree(self, *arguments: Any, **options: Any) -> TreeOutputs:
        """Launch the kernel of ``verify_tree``."""
        outputs: TreeOutputs = self._launch["verify_tree"](*arguments, **options)
        return outputs

    def grammar_mask(self, *arguments: Any) -> None:
        """Launch the kernel of ``grammar_mask``."""
        self._launch["grammar_mask"](*arguments)

    def _traffic(self) -> tuple[int, int]:
        """Return the bytes that the last launch read and wrote, as the emulator counts them."""
        stats = self.emulator.stats
        return sum(stats.gm_read_bytes), sum(stats.gm_write_bytes)


def library() -> DeviceEmulator:
    """Return the kernels, with every check of the emulator on unless an engine does without."""
    return DeviceEmulator(make_emulator(checks=os.environ.get(KERNEL_CHECKS) != "0"))


def on_npu(arguments: Arguments) -> Arguments:
    """Return the arguments with their tensors on the NPU."""
    return {
        name: value.to(NPU) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }


def on_cpu(result: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an op's result on the CPU."""
    return result[0].cpu(), result[1].cpu()
