"""The drafting methods of this release: what each needs, and which options mean something to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_ALWAYS = frozenset(
    {
        "method",
        "num_speculative_tokens",
        "num_speculative_tokens_per_batch_size",
        "rejection_sample_method",
        "synthetic_acceptance_rates",
        "synthetic_acceptance_length",
    }
)
_CHECKPOINT = _ALWAYS | {
    "model",
    "revision",
    "code_revision",
    "quantization",
    "draft_tensor_parallel_size",
    "draft_load_config",
    "draft_sample_method",
    "attention_backend",
    "kv_cache_dtype",
    "max_model_len",
    "enforce_eager",
    "use_local_argmax_reduction",
}


@dataclass(frozen=True)
class Method:
    """One value of ``speculative_config.method``.

    Attributes:
        name: the value.
        proposers: ``module:class`` of its proposer by kind of device, imported when an engine uses
            it. A kind that is not there does not have the method.
        needs_checkpoint: whether ``speculative_config.model`` names draft weights.
        has_draft_loop: whether drafts come one after another from a model.
        options: keys of ``speculative_config`` that have an effect.
        required: keys that have to be there.
    """

    name: str
    proposers: Mapping[str, str]
    needs_checkpoint: bool
    has_draft_loop: bool
    options: frozenset[str]
    required: tuple[str, ...] = ("num_speculative_tokens",)

    @property
    def can_sample_drafts(self) -> bool:
        """Whether drafts may be drawn from a distribution of their own."""
        return "draft_sample_method" in self.options


def _proposers(folder: str, name: str) -> dict[str, str]:
    """Return the two proposers of a method, by the names that they have in every folder.

    ``proposer.py`` has the one on top of vLLM's, ``npu.py`` the one on top of vllm-ascend's.
    """
    package = f"vllm_ascend_spec.proposers.{folder}"
    return {
        "cpu": f"{package}.proposer:Spec{name}Proposer",
        "npu": f"{package}.npu:SpecNpu{name}Proposer",
    }


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="eagle",
            proposers=_proposers("eagle", "Eagle"),
            needs_checkpoint=True,
            has_draft_loop=True,
            options=_CHECKPOINT | {"disable_padded_drafter_batch", "disable_eagle_block_drop"},
            required=("model", "num_speculative_tokens"),
        ),
        Method(
            name="draft_model",
            proposers=_proposers("draft_model", "DraftModel"),
            needs_checkpoint=True,
            has_draft_loop=True,
            options=_CHECKPOINT | {"use_heterogeneous_vocab"},
            required=("model", "num_speculative_tokens"),
        ),
        Method(
            name="ngram",
            proposers=_proposers("ngram", "Ngram"),
            needs_checkpoint=False,
            has_draft_loop=False,
            options=_ALWAYS | {"prompt_lookup_min", "prompt_lookup_max"},
        ),
        Method(
            name="custom_class",
            proposers=_proposers("custom_class", "CustomClass"),
            needs_checkpoint=False,
            has_draft_loop=False,
            options=_ALWAYS | {"model"},
            required=("model", "num_speculative_tokens"),
        ),
    )
}
