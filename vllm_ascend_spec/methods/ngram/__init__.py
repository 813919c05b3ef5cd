"""Drafts from the request's own text: what followed its last n-gram earlier (2304.04487)."""

from __future__ import annotations

from vllm_ascend_spec.config.draft_tree import FOUND
from vllm_ascend_spec.config.method import ALWAYS, Method
from vllm_ascend_spec.methods.ngram.checks import check_ngram

METHOD = Method(
    name="ngram",
    about="what followed the last n-gram earlier in the request's own text",
    options=ALWAYS | {"prompt_lookup_min", "prompt_lookup_max"},
    checks=(check_ngram,),
    trees=FOUND,
    # It drafts on the host, so it is the same everywhere.
    drafters=dict.fromkeys(
        ("vllm", "ascend"), ("vllm_ascend_spec.methods.ngram.drafter:NgramDrafter",)
    ),
)
