"""The drafting methods of this release: what each needs, and which options mean something to it."""

from __future__ import annotations

from dataclasses import dataclass

# Ascend's fused attention takes at most 16 rows per request (vllm-ascend attention_v1.py:273), and
# one command line does the same on every device.
MAX_DRAFT_TOKENS = 15

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
        proposer: ``module:class`` of its proposer, imported when an engine uses it.
        needs_checkpoint: whether ``speculative_config.model`` names draft weights.
        has_draft_loop: whether drafts come one after another from a model.
        options: keys of ``speculative_config`` that have an effect.
        required: keys that have to be there.
    """

    name: str
    proposer: str
    needs_checkpoint: bool
    has_draft_loop: bool
    options: frozenset[str]
    required: tuple[str, ...] = ("num_speculative_tokens",)


def _proposer(folder: str, cls: str) -> str:
    return f"vllm_ascend_spec.proposers.{folder}.proposer:{cls}"


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="eagle",
            proposer=_proposer("eagle", "SpecEagleProposer"),
            needs_checkpoint=True,
            has_draft_loop=True,
            options=_CHECKPOINT | {"disable_padded_drafter_batch", "disable_eagle_block_drop"},
            required=("model", "num_speculative_tokens"),
        ),
        Method(
            name="draft_model",
            proposer=_proposer("draft_model", "SpecDraftModelProposer"),
            needs_checkpoint=True,
            has_draft_loop=True,
            options=_CHECKPOINT | {"use_heterogeneous_vocab"},
            required=("model", "num_speculative_tokens"),
        ),
    )
}
