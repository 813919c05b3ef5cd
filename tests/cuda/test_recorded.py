"""What a GPU answered once is what a CPU answers without speculation.

The record, docs/records/engine-cuda.json, is compared on machines without a GPU, too.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.ascend.environment import ROOT
from tests.cuda.gpu import CPU
from tests.cuda.matrix import without_speculation
from tests.engines import assert_same
from tests.marks import requires_cpu_build
from tests.zoo import ZOO_TARGET

pytestmark = [requires_cpu_build, pytest.mark.timeout(900)]
RECORD = json.loads((ROOT / "docs" / "records" / "engine-cuda.json").read_text())
EXACT = ("greedy", "penalties")


def test_a_gpus_greedy_answers_are_those_of_a_cpu_without_speculation(run_engine: Any) -> None:
    case = replace(without_speculation(), engine={"model": ZOO_TARGET}, requests=EXACT)
    expected = run_engine(case, CPU.environment)["answers"]
    for kind in EXACT:
        answers = [answer["tokens"] for answer in expected[kind]]
        # The record's are longer.
        recorded = zip(RECORD["tokens"][kind], answers, strict=True)
        assert_same([ours[: len(theirs)] for ours, theirs in recorded], answers)


def test_the_gpu_drafted_and_verified() -> None:
    """Negative control: one token a step would be the same text."""
    assert RECORD["platform"] == "SpecCudaPlatform"
    for kind in EXACT:
        counted = RECORD["counters"][kind]
        drafted = counted["vllm:spec_decode_num_draft_tokens"]
        accepted = counted["vllm:spec_decode_num_accepted_tokens"]
        assert 0.1 * drafted < accepted < drafted
        steps, tokens = (
            counted["vllm:spec_decode_num_drafts"],
            sum(map(len, RECORD["tokens"][kind])),
        )
        # Each step gives what was accepted and one more; the first token is of the prompt's step,
        # and what is past the end of an answer is dropped.
        assert steps < tokens <= steps + accepted + len(RECORD["tokens"][kind])
