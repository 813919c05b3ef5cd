"""Models with several MTP layers refuse some numbers of drafts.

Why: vLLM refuses a number of drafts above the number of MTP layers that is not a multiple of it
(vllm/config/speculative.py:SpeculativeConfig), so that each layer is used equally often. But its V1
runner uses the first layer for every draft
(vllm/v1/spec_decode/llm_base_proposer.py:SpecDecodeBaseProposer.propose): three drafts with two
layers are refused for no reason, and the other layers and their KV cache take memory that nobody
reads.
How: the draft's config has one layer, except for models whose proposer uses all of them.
Until: vLLM's V1 runner uses all layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert
_stock: Callable[[Any], Any] | None = None
# Types of models whose proposer uses all layers.
USE_ALL = ("step3p5_mtp", "inkling_mtp")


def hf_config_override(hf_config: Any) -> Any:
    """Return vLLM's draft config with one MTP layer; a global function, as configs are pickled."""
    from vllm.config.speculative import MTPModelTypes, SpeculativeConfig

    found = (_stock or SpeculativeConfig.hf_config_override)(hf_config)
    is_mtp = found.model_type in get_args(MTPModelTypes) and found.model_type not in USE_ALL
    if is_mtp and (getattr(found, "n_predict", None) or 1) > 1:
        found.update({"n_predict": 1, "num_nextn_predict_layers": 1})
    return found


def apply() -> None:
    """Install the patch once."""
    global _stock  # noqa: PLW0603 - the replacement is found by its name where it is unpickled
    if _patches:
        return
    from vllm.config.speculative import SpeculativeConfig

    _stock = SpeculativeConfig.hf_config_override
    _patches.set(SpeculativeConfig, "hf_config_override", staticmethod(hf_config_override))
