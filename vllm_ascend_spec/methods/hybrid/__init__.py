"""Suffix trees plus a draft model: each request takes in each step the more promising drafts.

This follows the paper on suffix decoding (2411.04975, section 4), which uses a model's drafts if
the score of the tree's draft is low. Here both sides are measured: the acceptance that scores and
model drafts had so far decides (``estimate.py``).
"""

from __future__ import annotations

from dataclasses import replace

from vllm_ascend_spec.methods import eagle
from vllm_ascend_spec.methods.hybrid.checks import hybrid_for, hybrid_of

# Assumes an EAGLE head as long as the model is unknown.
METHOD = replace(hybrid_of(eagle.METHOD), for_spec=hybrid_for)
