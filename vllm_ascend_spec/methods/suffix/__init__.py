"""Drafts from suffix trees of a request's text and of earlier answers (2411.04975)."""

from __future__ import annotations

from vllm_ascend_spec.config.draft_tree import FOUND
from vllm_ascend_spec.config.method import ALWAYS, Method
from vllm_ascend_spec.methods.suffix.checks import check_suffix, warn_of_length

OPTIONS = frozenset(
    {
        "suffix_decoding_max_tree_depth",
        "suffix_decoding_max_cached_requests",
        "suffix_decoding_max_spec_factor",
        "suffix_decoding_min_token_prob",
    }
)
METHOD = Method(
    name="suffix",
    about="what followed the same words in the request's text and in earlier answers",
    options=ALWAYS | OPTIONS,
    checks=(check_suffix,),
    warn=warn_of_length,
    drafts_on_host=True,
    trees=FOUND,
    # It drafts on the host, so it is the same everywhere.
    drafters=dict.fromkeys(
        ("vllm", "ascend"), ("vllm_ascend_spec.methods.suffix.drafter:SuffixDrafter",)
    ),
)
