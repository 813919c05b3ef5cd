"""MTP layers that blank the first position through a mask, in a graph on the NPU.

Why: layers of MiMo, Ernie 4.5, GLM 4.7 Flash and HY V3 run ``inputs_embeds[positions == 0] = 0``
(vllm/model_executor/models/mimo_mtp.py:MiMoMultiTokenPredictorLayer.forward). On an NPU, PyTorch
asks the device which rows these are, and the host waits: this slows every draft step, and no graph
can be captured. vLLM has changed DeepSeek's layer for that reason (pull request 27643), but not
these.
How: these layers get embeddings that run such an assignment as a masked fill.
Until: they use ``torch.where`` as ``deepseek_mtp.py`` does.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert
# Modules of vllm.model_executor.models, and their layers.
LAYERS = {
    "mimo_mtp": "MiMoMultiTokenPredictorLayer",
    "ernie_mtp": "ErnieMultiTokenPredictorLayer",
    "glm4_moe_lite_mtp": "Glm4MoeLiteMultiTokenPredictorLayer",
    "hy_v3_mtp": "HYV3MultiTokenPredictorLayer",
}


class Embeddings(torch.Tensor):
    """Embeddings [num_tokens, hidden_size]; ops return plain tensors."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __setitem__(
        self,
        rows: torch.Tensor,  # bool [num_tokens]
        value: float,
    ) -> None:
        """Fill the selected rows, in place."""
        self.masked_fill_(rows.unsqueeze(-1), value)


def filling(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Return a layer's ``forward`` that blanks rows without making the host wait."""
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def forward(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.arguments["inputs_embeds"] = given.arguments["inputs_embeds"].as_subclass(Embeddings)
        return stock(*given.args, **given.kwargs)

    return forward


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    for module, name in LAYERS.items():
        layer = getattr(importlib.import_module(f"vllm.model_executor.models.{module}"), name)
        _patches.set(layer, "forward", filling(layer.forward))
