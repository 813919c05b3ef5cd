"""The record that describes a drafting method to the rest of the package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm_ascend_spec.checkpoint.draft import Draft
    from vllm_ascend_spec.config.engine import SpecInput

# Options of every method.
ALWAYS = frozenset(
    {
        "method",
        "num_speculative_tokens",
        "num_speculative_tokens_per_batch_size",
        "disable_by_batch_size",
        "rejection_sample_method",
        "synthetic_acceptance_rates",
        "synthetic_acceptance_length",
    }
)
# Options of every method with a draft model.
CHECKPOINT = ALWAYS | {
    "model",
    "revision",
    "code_revision",
    "quantization",
    "draft_tensor_parallel_size",
    "draft_load_config",
    "draft_sample_method",
    "attention_backend",
    "moe_backend",
    "kv_cache_dtype",
    "max_model_len",
    "enforce_eager",
    "use_local_argmax_reduction",
}
# Options of methods whose keys and values depend on the next token (EAGLE, EAGLE-3, MTP).
READS_AHEAD = CHECKPOINT | {
    "disable_padded_drafter_batch",
    "disable_eagle_block_drop",
    "disable_lookahead_block_hashes",
}


@dataclass(frozen=True, kw_only=True)
class Method:
    """One value of ``speculative_config.method``. Making one imports neither torch nor vLLM.

    Attributes:
        name: the value.
        about: what drafts, in a few words.
        options: keys of ``speculative_config`` that have an effect.
        aliases: other values that mean the same.
        required: keys that have to be there.
        drafters: bases of its drafter's class for each family of draft loops, as
            ``module:Class`` in method resolution order. A family that is missing does not have
            the method. ``vllm`` is the family of CPU and CUDA, ``ascend`` that of the NPU.
        drafters_by_type: the same for drafts with a proposer of their own, by vLLM's name of the
            draft's model type.
        needs_checkpoint: whether ``speculative_config.model`` names draft weights.
        is_in_target: whether draft weights are in the target's own folder if no model is named.
        has_draft_loop: whether a model makes the drafts in the draft loop of its family.
        in_one_pass: whether it makes all drafts in one pass, whatever the options say.
        trees: which trees it can draft: ``any`` shape, ``found`` (in the text) or None.
        most_steps: returns how many drafts can follow each other, or None for any number.
        drafts_on_host: whether it drafts from a step's tokens on the host, so that a step can
            be scheduled only after the step before it has ended.
        vllm_method: the method name given to vLLM's own config if vLLM does not know this method;
            None for ``name``.
        checks: rules about its options together; each raises ``ConfigError``.
        check_checkpoint: raises ``CheckpointError`` if the draft's checkpoint cannot be used.
        warn: returns what a user who asked for this should know.
        for_spec: of a method that combines others: returns its record for a speculative config,
            given all methods by name. Raises ``ConfigError`` if it cannot tell which others.
    """

    name: str
    about: str
    options: frozenset[str]
    drafters: Mapping[str, tuple[str, ...]]
    drafters_by_type: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    aliases: frozenset[str] = frozenset()
    required: tuple[str, ...] = ("num_speculative_tokens",)
    needs_checkpoint: bool = False
    is_in_target: bool = False
    has_draft_loop: bool = False
    in_one_pass: bool = False
    trees: str | None = None
    most_steps: Callable[[SpecInput], int | None] | None = None
    drafts_on_host: bool = False
    vllm_method: str | None = None
    checks: tuple[Callable[[SpecInput], None], ...] = ()
    check_checkpoint: Callable[[Draft], None] | None = None
    warn: Callable[[SpecInput], Iterable[str]] | None = None
    for_spec: Callable[[Mapping[str, Any], Mapping[str, Method]], Method] | None = None

    @property
    def can_sample_drafts(self) -> bool:
        """Whether drafts may be sampled from a distribution of their own."""
        return "draft_sample_method" in self.options
