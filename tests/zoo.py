"""Checkpoints that tests run, and a speculative config for each method on them.

By day they are those of ``tests/models``, three layers deep; by night the zoo's, of twelve.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from vllm_ascend_spec.methods.registry import BUILT_IN as METHODS

ZOO = Path(__file__).parents[1] / "examples" / "zoo"
SHALLOW = Path(__file__).parent / "models"
MODELS = ZOO if "TESTS_COMPILE_ALL" in os.environ else SHALLOW


def folder_of(name: str) -> Path:
    """Return the folder of a checkpoint; DeepSeek's are the zoo's alone."""
    return MODELS / name if (MODELS / name).exists() else ZOO / name


TARGET = str(MODELS / "target")
CONFIG: dict[str, Any] = json.loads((MODELS / "target" / "config.json").read_text())
DEPTH, WIDTH = CONFIG["num_hidden_layers"], CONFIG["hidden_size"]
# The same, quantized by examples/zoo/quantize.py.
W8A8 = str(MODELS / "target-w8a8")


def specs_of(models: Path) -> dict[str, dict[str, Any]]:
    """Return a speculative config for each method, with the drafts of a folder."""
    return {
        "eagle": {"method": "eagle", "model": str(models / "eagle"), "num_speculative_tokens": 3},
        "eagle3": {
            "method": "eagle3",
            "model": str(models / "eagle3"),
            "num_speculative_tokens": 3,
        },
        # Its own target, whose answers are those of the other one: it has the same weights.
        "mtp": {"method": "mtp", "model": str(models / "target-mimo"), "num_speculative_tokens": 3},
        "draft_model": {
            "method": "draft_model",
            "model": str(models / "draft"),
            "num_speculative_tokens": 3,
        },
        "dflash": {
            "method": "dflash",
            "model": str(models / "dflash"),
            "num_speculative_tokens": 3,
        },
        "dspark": {
            "method": "dspark",
            "model": str(models / "dspark"),
            "num_speculative_tokens": 3,
        },
        "hybrid": {"method": "hybrid", "model": str(models / "eagle"), "num_speculative_tokens": 3},
        "medusa": {
            "method": "medusa",
            "model": str(models / "medusa"),
            "num_speculative_tokens": 3,
        },
        "mlp_speculator": {
            "method": "mlp_speculator",
            "model": str(models / "mlp_speculator"),
            "num_speculative_tokens": 3,
        },
        "ngram": {
            "method": "ngram",
            "num_speculative_tokens": 5,
            "prompt_lookup_min": 2,
            "prompt_lookup_max": 4,
        },
        "suffix": {"method": "suffix", "num_speculative_tokens": 5},
        "custom_class": {
            "method": "custom_class",
            "model": "examples.custom_proposer.RecentFollower",
            "num_speculative_tokens": 3,
        },
    }


SPECS = specs_of(MODELS)
# For what the documents' figures and commands are about, and what only a deep target shows.
ZOO_TARGET, ZOO_SPECS = str(ZOO / "target"), specs_of(ZOO)
# A method with an option that makes another one of it, by the name that papers have for it.
SPECS_IN_ONE_PASS: dict[str, dict[str, Any]] = {
    "pard": {
        "method": "draft_model",
        "model": str(MODELS / "pard"),
        "num_speculative_tokens": 3,
        "parallel_drafting": True,
    },
    "peagle": {
        "method": "eagle3",
        "model": str(MODELS / "peagle"),
        "num_speculative_tokens": 3,
        "parallel_drafting": True,
    },
}
EVERY = SPECS | SPECS_IN_ONE_PASS
# Those that make all drafts of a step in one pass of a model.
IN_ONE_PASS = [*SPECS_IN_ONE_PASS, "dflash", "dspark"]
# The most drafts of a step, where a checkpoint limits them or hardly gets that far.
MOST_DRAFTS = {"medusa": 4, "mlp_speculator": 3, "pard": 4, "peagle": 4, "dflash": 3}
if MODELS == SHALLOW:
    MOST_DRAFTS |= {"medusa": 3, "pard": 3}
# Tokens per step that greedy answers exceed, where a method is not worth what others are.
LEAST = {"medusa": 1.2, "pard": 1.2, "peagle": 1.2, "dflash": 1.1}
# One method for each way in which drafts reach the verifier: the same number for every request, or
# not. What a request asks for is between the runner and the verifier, which know no more of it.
ONE_OF_EACH_KIND = ("eagle", "ngram")
# Those with later steps. A hybrid has a loop and drafts fewer than K where its trees are better.
WITH_A_LOOP = [
    name
    for name in SPECS
    if METHODS[name].has_draft_loop and METHODS[name].for_spec is None and name not in IN_ONE_PASS
]
# Those whose drafts are always K.
ALWAYS_K = [*WITH_A_LOOP, *IN_ONE_PASS]
# Method and how its drafts are picked.
WAYS_TO_DRAFT = [
    (name, how)
    for name in SPECS
    for how in ("greedy", "probabilistic")
    if how == "greedy" or METHODS[name].can_sample_drafts
]


def _by_day(method: str) -> Any:
    return () if method in ONE_OF_EACH_KIND else pytest.mark.nightly


# For what knows no more of a method than its kind: the others repeat it by night.
KINDS = [pytest.param(name, marks=_by_day(name)) for name in EVERY]
KINDS_OF_DRAFTS = [pytest.param(*way, marks=_by_day(way[0])) for way in WAYS_TO_DRAFT]
# Methods whose drafts come from the loop of another one, or in the same places of a step: EAGLE's,
# Medusa's heads, DFlash's one pass, n-grams that the host finds. PARD's one pass fills the cache of
# a draft model, and a hybrid's drafts are EAGLE's or of suffix trees. Rows and blocks are the same
# there, so what only moves those is repeated by night.
SAME_PLACES = (
    *("eagle3", "mtp", "mlp_speculator", "peagle", "dspark", "custom_class"),
    *("pard", "hybrid"),
)
LOOPS = [
    pytest.param(name, marks=pytest.mark.nightly if name in SAME_PLACES else ()) for name in EVERY
]


def drafting(method: str, how: str) -> dict[str, Any]:
    """Return the spec of a method whose drafts are picked so; some cannot be sampled."""
    can_sample = METHODS[EVERY[method]["method"]].can_sample_drafts
    return EVERY[method] | ({"draft_sample_method": how} if can_sample else {})


# Targets with experts, each with an EAGLE-3 head of its own: Qwen3-MoE, whose ranks can share the
# experts, and gpt-oss, with a window of 64 tokens in every other layer and attention sinks.
MIXTURES = ("qwen3-moe", "gpt-oss")


def spec_of_mixture(name: str) -> dict[str, Any]:
    """Return the speculative config of one of :data:`MIXTURES`."""
    return {**specs_of(ZOO)["eagle3"], "model": str(ZOO / f"eagle3-{name}")}


# Gemma 4, with a window of 64 tokens in all layers but the last, and its assistant.
GEMMA4 = str(ZOO / "target-gemma4")
ASSISTANT: dict[str, Any] = {
    "method": "mtp",
    "model": str(ZOO / "mtp-gemma4"),
    "num_speculative_tokens": 3,
}


def target_of(spec: Mapping[str, Any] | None) -> str:
    """Return the model that a spec drafts for: MTP layers are those of their own one."""
    if spec is None or "mtp" not in (spec["method"], spec.get("hybrid_model_method")):
        return TARGET
    return str(spec.get("model", TARGET))
