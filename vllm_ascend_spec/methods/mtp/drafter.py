"""What Gemma 4's assistant needs beside a draft loop.

Its layers have no keys and values: each attends to those of the target's last layer of its kind.
All its draft steps are at the position of the last token that the target has read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_ascend_spec.config.draft_window import OPTION
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.methods.mtp.check_window import NO_WINDOW
from vllm_ascend_spec.upstream.limits import NO_ASSISTANT_ON_NPU

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from vllm_ascend_spec.methods.drafter import DrafterContext
    from vllm_ascend_spec.methods.loops.window import DraftWindow


class AssistantMixin:
    """Mixin for vLLM's ``Gemma4Proposer``; goes before our loop in the bases."""

    device: torch.device
    window: DraftWindow
    chooses_window: bool
    _centroids_sizes: list[int]

    @classmethod
    def create(cls, engine: DrafterContext) -> Self:
        """Build the drafter of an engine.

        Raises:
            ConfigError: this version of vllm-ascend has no proposer for it.
        """
        if engine.speculation.family == "ascend" and NO_ASSISTANT_ON_NPU is not None:
            what = f"not possible with an assistant of Gemma 4 and {NO_ASSISTANT_ON_NPU}"
            raise ConfigError("speculative_config.method", "mtp", what)
        return super().create(engine)  # type: ignore[misc]

    def require_possible(self) -> None:
        """Refuse a window, which ``check`` refuses where the draft's folder is there.

        Raises:
            ConfigError: naming the option and the reason.
        """
        super().require_possible()  # type: ignore[misc]
        if self.window.size is not None or self.chooses_window:
            raise ConfigError(OPTION, self.window.size or "auto", NO_WINDOW)

    def _setup_centroids_cuda_graphs(self) -> None:
        """Capture the search for the best tokens, on CUDA alone; the name is vLLM's.

        vLLM captures it on every device (vllm/v1/spec_decode/gemma4.py). Without these graphs it
        picks from the same logits.
        """
        if self.device.type == "cuda":
            super()._setup_centroids_cuda_graphs()  # type: ignore[misc]
