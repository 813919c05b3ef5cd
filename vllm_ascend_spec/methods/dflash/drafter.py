"""What a DFlash head needs of the target on an NPU."""

from __future__ import annotations

from typing import Any


class InnerStates:
    """Asks the target for the states of inner layers by the head's config, as vLLM does."""

    draft_model_config: Any

    @property
    def wants_aux_hidden_states(self) -> bool:
        """Whether the target is to return the states of inner layers."""
        own = getattr(self.draft_model_config.hf_config, "dflash_config", None) or {}
        return bool(own.get("use_aux_hidden_state", True))
