"""DSpark on model runner V1, and room for the longer of its two blocks.

Why: vLLM refuses the method on V1 (vllm/config/vllm.py:
VllmConfig._get_v1_model_runner_unsupported_features), whose runner has no proposer for it; this
package brings one. And it reserves K slots of the KV cache for a block
(``VllmConfig.num_lookahead_tokens``, ``SpeculativeConfig.max_num_new_slots_for_drafting``), but one
that begins with the last token and drafts from masks alone has K+1 rows. The last of them may stand
in a block of the cache that the request does not have.
How: the refusal is left out, and such heads get another slot.
Until: this package has a runner for V2, and vLLM counts the rows of such heads.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.patches.patching import Patches

METHOD, FEATURE = "dspark", "dspark speculative decoding"
_patches = Patches()
revert = _patches.revert


def has_another_row(spec: Any) -> bool:
    """Tell whether the blocks of a speculative config have K+1 rows, and vLLM counts K."""
    if spec is None or spec.method != METHOD or spec.draft_model_config is None:
        return False
    return not getattr(spec.draft_model_config.hf_config, "sample_from_anchor", True)


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.config import SpeculativeConfig, VllmConfig

    features = VllmConfig._get_v1_model_runner_unsupported_features
    lookahead, slots = (
        VllmConfig.num_lookahead_tokens,
        SpeculativeConfig.max_num_new_slots_for_drafting,
    )

    def without_dspark(self: Any) -> list[str]:
        """Return the features that V1 does not support."""
        return [feature for feature in features(self) if feature != FEATURE]

    def with_another_token(self: Any) -> int:
        """Return the slots to reserve past the tokens that the target computes."""
        found, spec = lookahead.__get__(self), self.speculative_config
        # vLLM 0.32 counts these rows itself.
        return max(found, spec.num_speculative_tokens + 1) if has_another_row(spec) else found

    def with_another_slot(self: Any) -> int:
        """Return the slots of the draft's input beside those of the target's."""
        return slots.__get__(self) + has_another_row(self)

    _patches.set(VllmConfig, "_get_v1_model_runner_unsupported_features", without_dspark)
    _patches.set(VllmConfig, "num_lookahead_tokens", property(with_another_token))
    _patches.set(SpeculativeConfig, "max_num_new_slots_for_drafting", property(with_another_slot))
