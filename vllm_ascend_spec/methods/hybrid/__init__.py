"""Suffix trees and a draft model at once: each request and step takes the drafts that promise more.

After the paper on suffix decoding (2411.04975, section 4), which takes a model's drafts where the
score of the tree's is low. Here both sides are measured: what a score and a model's draft were
worth so far decides (``estimate.py``).
"""

from __future__ import annotations

from dataclasses import replace

from vllm_ascend_spec.methods import eagle
from vllm_ascend_spec.methods.hybrid.checks import hybrid_for, hybrid_of

# With an EAGLE head, where nothing is known of the model.
METHOD = replace(hybrid_of(eagle.METHOD), for_spec=hybrid_for)
