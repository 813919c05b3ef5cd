"""Ten minutes of a server under everything at once, by method; run with ``-m soak``.

``SOAK_SECONDS`` sets the time of each server. What came of it stands in docs/reliability.md.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.soak import Soak, seconds_of
from tests.e2e.soaked import NO_KERNEL_CACHE, STEADY, assert_soaked, references_of
from tests.zoo import SPECS, target_of
from vllm_ascend_spec.bench.server import Server

SECONDS = seconds_of(600)
WARM_UP = 0.25
ARGUMENTS = (
    *("--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "8", "--enforce-eager"),
    *STEADY,
)
ADAPTIVE = ("--additional-config", json.dumps({"ascend_spec": {"draft_length": "adaptive"}}))
# One for each way of a step, and the one without speculation, which shows what is vLLM's.
WAYS: dict[str, tuple[dict[str, Any] | None, tuple[str, ...]]] = {
    "none": (None, ()),
    "eagle": (SPECS["eagle"], ()),
    "eagle adaptive": (SPECS["eagle"], ADAPTIVE),
    "draft_model": (SPECS["draft_model"], ()),
    "mtp": (SPECS["mtp"], ()),
    "ngram": (SPECS["ngram"], ()),
    "suffix": (SPECS["suffix"], ()),
}


@pytest.mark.soak
@pytest.mark.timeout(1800 + 2 * SECONDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_soak(way: str, prompts: list[str], expect: Any) -> None:
    """No error, no wrong answer, nothing left behind."""
    spec, arguments = WAYS[way]
    references = references_of(expect, prompts[:24])
    drafts = None if spec is None else spec["num_speculative_tokens"]
    environment = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", **NO_KERNEL_CACHE}
    model = target_of(spec)
    with Server(model, spec, arguments=(*ARGUMENTS, *arguments), environment=environment) as server:
        soak = Soak(server.url, model, references, drafts)
        assert_soaked(server, soak, WARM_UP * SECONDS, (1 - WARM_UP) * SECONDS)
