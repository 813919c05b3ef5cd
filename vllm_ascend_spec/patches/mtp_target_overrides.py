"""MTP layers keep the checkpoint's context where a target's is overridden.

Why: vLLM applies ``hf_overrides`` that are a dict to the target only
(vllm/config/speculative.py:SpeculativeConfig.compose_draft_hf_overrides). MTP layers are part of
the target: if its context is extended (``--hf-overrides '{"rope_parameters": …}'``), they get other
rotary positions than the target, and vLLM drafts nothing for a batch with a request longer than the
checkpoint's own context.
How: overrides of positions go to the config of MTP layers, too.
Until: vLLM applies a target's overrides to its MTP layers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, get_args

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert
POSITIONS = (
    "max_position_embeddings",
    "original_max_position_embeddings",
    "model_max_length",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
)


def with_positions(overrides: Mapping[str, Any], hf_config: Any) -> Any:
    """Return vLLM's config of a draft; MTP layers get their target's position overrides.

    Args:
        overrides: the target's ``hf_overrides``.
        hf_config: the draft's own config.
    """
    from vllm.config.speculative import MTPModelTypes, SpeculativeConfig

    found = SpeculativeConfig.hf_config_override(hf_config)
    if found.model_type in get_args(MTPModelTypes):
        of_text = overrides.get("text_config")
        given = {**(of_text if isinstance(of_text, Mapping) else {}), **overrides}
        for name in POSITIONS:
            if name in given:
                setattr(found.get_text_config(), name, given[name])
    return found


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.config.speculative import SpeculativeConfig

    stock: Callable[[Any], Any] = SpeculativeConfig.compose_draft_hf_overrides

    def compose_draft_hf_overrides(target_hf_overrides: Any) -> Any:
        if isinstance(target_hf_overrides, Mapping) and target_hf_overrides:
            # A partial, because configs are pickled.
            return functools.partial(with_positions, dict(target_hf_overrides))
        return stock(target_hf_overrides)

    replacement = staticmethod(compose_draft_hf_overrides)
    _patches.set(SpeculativeConfig, "compose_draft_hf_overrides", replacement)
