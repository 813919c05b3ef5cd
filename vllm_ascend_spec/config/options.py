"""Every option of ``speculative_config``: what it is, and which values are valid.

Each option has one record here. The records in ``methods/`` say which methods an option belongs to;
``combinations.py`` has the rules about several options at once. The values are checked here and not
by vLLM's own config class, because importing that takes six seconds and ``check`` a tenth of one.
vLLM is asked only for values that its plugins can add to (``known_to_vllm.py``), and only if the
option is given. JSON has types, so ``1`` is not a flag, although vLLM would accept it. Strings that
hold a number or a flag are converted first (``string_values.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.config import known_to_vllm
from vllm_ascend_spec.config.tree_shape import size_of
from vllm_ascend_spec.config.values import (
    Check,
    anything,
    boolean,
    int_in,
    json_object,
    non_empty_list,
    number,
    one_of,
    optional,
    text,
)

# Limit for all devices; each device has a limit of its own, see ``Device.max_drafts``.
MAX_DRAFT_TOKENS = 64
# vLLM allocates this many numbers for each search (vllm/v1/spec_decode/ngram_proposer.py). An
# n-gram longer than any request finds nothing.
MAX_NGRAM = 2**20
MAX_LENGTH = 2**31 - 1  # positions are 32 bit
# Each token of a text is inserted into the tree as many times as the tree is deep.
MAX_TREE_DEPTH = 1024
# Our default, which is "probabilistic" where possible (draft_sampling.py), then vLLM's values.
DRAFT_SAMPLE_METHODS = ("auto", "greedy", "probabilistic")
# vLLM's names; "standard" leaves the choice to verify_rule.
RULE_METHODS = ("standard", "block", "synthetic")


@dataclass(frozen=True)
class Option:
    """One key of ``speculative_config``.

    Attributes:
        name: the key.
        about: what it is or does; its row in docs/reference.md.
        check: returns what is valid if a value is not, else None.
        unset: vLLM's default, which counts as not given. Methods without the option accept it.
    """

    name: str
    about: str
    check: Check
    unset: Any = None


def _paths(value: Any) -> str | None:
    size = size_of(None, value)
    is_right = size is not None and size <= MAX_DRAFT_TOKENS
    return None if is_right else f"valid: a list of up to {MAX_DRAFT_TOKENS} paths, as [(0,), (1,)]"


OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("method", "the drafting method", anything("a method's name")),
        # Which of the two it is depends on the method, see draft_options.py and custom_class.py.
        Option(
            "model",
            "the draft model or head; with custom_class the Python class",
            anything("a folder or a hub's name; of custom_class a class"),
        ),
        Option(
            "num_speculative_tokens",
            "K, the maximum number of drafts per request and step",
            int_in(1, MAX_DRAFT_TOKENS),
        ),
        Option(
            "num_speculative_tokens_per_batch_size",
            "K by batch size; batches larger than the last row use its K",
            optional(non_empty_list("rows [first, last, K]")),
        ),
        Option(
            "rejection_sample_method",
            "the acceptance rule: standard (the token rule, or verify_rule), block, or synthetic "
            "(accepts drafts at given rates, for benchmarks; not lossless)",
            one_of(*RULE_METHODS),
            unset=RULE_METHODS[0],
        ),
        Option(
            "synthetic_acceptance_rates",
            "with synthetic: K probabilities; the i-th is that drafts 1 to i are all accepted",
            optional(non_empty_list("numbers")),
        ),
        Option(
            "synthetic_acceptance_length",
            "with synthetic: the mean number of tokens per step, at most K + 1",
            optional(number(1, MAX_DRAFT_TOKENS + 1)),
        ),
        Option(
            "speculative_token_tree",
            "the paths of a tree of drafts, as in vLLM's old documents: [(0,), (1,), (0, 0)] are "
            "the two likeliest tokens and what likeliest follows the first",
            optional(_paths),
        ),
        Option(
            "draft_sample_method",
            "how drafts of sampled requests are picked: probabilistic (sampled from the draft "
            "model's distribution), greedy, or auto (probabilistic where possible)",
            one_of(*DRAFT_SAMPLE_METHODS),
            unset=DRAFT_SAMPLE_METHODS[1],
        ),
        Option(
            "disable_by_batch_size",
            "batches of more requests than this get no drafts",
            optional(int_in(1, MAX_LENGTH)),
        ),
        Option(
            "hybrid_model_method",
            "the method of the draft model beside the suffix trees; left out: the one that fits "
            "the checkpoint",
            optional(text("a method with a draft model")),
        ),
        Option(
            "prompt_lookup_min",
            "the shortest n-gram to look up; left out: the longest, or 5",
            optional(int_in(1, MAX_NGRAM)),
        ),
        Option(
            "prompt_lookup_max",
            "the longest n-gram to look up; left out: the shortest, or 5",
            optional(int_in(1, MAX_NGRAM)),
        ),
        # A tree of depth 1 has no room for a draft after a match.
        Option(
            "suffix_decoding_max_tree_depth",
            "the maximum number of tokens in a match and its drafts together",
            int_in(2, MAX_TREE_DEPTH),
            unset=24,
        ),
        Option(
            "suffix_decoding_max_cached_requests",
            "how many earlier answers are kept; the oldest are removed first",
            int_in(0, MAX_LENGTH),
            unset=10000,
        ),
        Option(
            "suffix_decoding_max_spec_factor",
            "the maximum number of drafts per matched token",
            number(0, MAX_TREE_DEPTH),
            unset=1.0,
        ),
        Option(
            "suffix_decoding_min_token_prob",
            "the share of earlier matches that a draft must have followed",
            number(0, 1),
            unset=0.1,
        ),
        Option(
            "revision", "branch, tag or commit of the draft on its hub", optional(text("a name"))
        ),
        Option("code_revision", "the same for the draft's code", optional(text("a name"))),
        Option(
            "max_model_len",
            "longer requests go on without drafts; left out: the draft's max_position_embeddings",
            optional(int_in(1, MAX_LENGTH)),
        ),
        Option(
            "draft_tensor_parallel_size",
            "how many devices share the draft: 1, or as many as the target",
            optional(int_in(1, MAX_LENGTH)),
        ),
        Option("enforce_eager", "run the draft without graphs", optional(boolean())),
        Option(
            "disable_padded_drafter_batch",
            "do not pad the draft's input, so requests have different lengths in it",
            boolean(),
            unset=False,
        ),
        Option(
            "disable_eagle_block_drop",
            "also reuse the last block of a cached prefix",
            boolean(),
            unset=False,
        ),
        Option(
            "disable_lookahead_block_hashes",
            "hash a prefix block without the next tokens, which the draft reads",
            boolean(),
            unset=False,
        ),
        Option(
            "use_local_argmax_reduction",
            "each device takes the argmax of its part of the vocabulary before the gather",
            boolean(),
            unset=False,
        ),
        Option(
            "dspark_draft_topk",
            "each draft is one of that many tokens, the likeliest before the Markov head; left "
            "out: of all",
            optional(int_in(1, MAX_LENGTH)),
        ),
        Option(
            "parallel_drafting", "make all drafts in one pass, from masks", boolean(), unset=False
        ),
        Option(
            "use_heterogeneous_vocab",
            "the draft has another vocabulary than the target; drafts are greedy",
            boolean(),
            unset=False,
        ),
        Option("quantization", "the draft's quantization", optional(known_to_vllm.quantization)),
        Option(
            "kv_cache_dtype",
            "the dtype of the draft's KV cache",
            optional(known_to_vllm.kv_cache_dtype),
        ),
        Option(
            "attention_backend",
            "the draft's attention backend",
            optional(known_to_vllm.attention_backend),
        ),
        Option(
            "moe_backend", "the backend of the draft's experts", optional(known_to_vllm.moe_backend)
        ),
        Option("draft_model_config", "which hidden states are exported", optional(json_object())),
        Option(
            "draft_load_config",
            "how the draft is loaded: vLLM's LoadConfig",
            optional(known_to_vllm.load_config),
        ),
    )
}
_V2 = "is for vLLM's model runner V2, and this package uses V1; leave it out"
_FLY = "is for the rule 'fly', which is not lossless; leave it out"
# vLLM's other keys: their default, and why this release does not have them.
# tests/config/test_options.py compares both tables with vLLM.
ABSENT: dict[str, tuple[Any, str]] = {
    "draft_parallel_config": (None, "is filled in by vLLM; leave it out"),
    "draft_lm_head_quantization": (None, _V2),
    "enable_adaptive_verification": (False, _V2),
    "fly_entropy_threshold": (0.3, _FLY),
    "fly_entropy_top_k": (3, _FLY),
    "fly_window_size": (None, _FLY),
    "index_share_for_mtp_iteration": (
        None,
        "is not supported by this release, whose draft steps each compute their own indices; "
        "leave it out",
    ),
    "tensor_parallel_size": (None, "has another name here; write 'draft_tensor_parallel_size'"),
    "xpress_topc": (None, "is for XPress drafts, which this release does not have; leave it out"),
}
# Options that vLLM refuses with methods that do not have them, or turns other features off for.
# With such methods it does not read the rest of OPTIONS.
NOT_POSSIBLE = frozenset(
    {"disable_padded_drafter_batch", "parallel_drafting", "use_heterogeneous_vocab"}
)
# Options that vLLM's own config does not have; hooks/method_alias.py keeps them from it.
OURS = frozenset({"disable_by_batch_size", "hybrid_model_method", "speculative_token_tree"})
# Filled in by vLLM when it builds the config, not by a user.
INTERNAL = ("target_model_config", "target_parallel_config")


def is_unset(name: str, value: Any) -> bool:
    """Tell whether ``value`` is vLLM's default of option ``name``."""
    if name in OPTIONS:
        default = OPTIONS[name].unset
    elif name in ABSENT:
        default = ABSENT[name][0]
    else:
        return False
    return type(value) is type(default) and value == default
