"""The target's states that a DFlash head needs on an NPU."""

from __future__ import annotations

from typing import Any


class InnerStates:
    """Requests the states of inner layers if the head's config says so, as vLLM does."""

    draft_model_config: Any

    @property
    def wants_aux_hidden_states(self) -> bool:
        """Whether the target has to return the states of inner layers."""
        own = getattr(self.draft_model_config.hf_config, "dflash_config", None) or {}
        return bool(own.get("use_aux_hidden_state", True))
