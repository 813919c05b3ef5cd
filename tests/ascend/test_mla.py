"""Targets with DeepSeek's attention (MLA, dense and sparse) and its MTP layer.

The reference is the same NPU without speculation: vllm-ascend reads prompts in bfloat16 whatever
the dtype is. Everything after the prompt is float32 here, so that answers can be compared exactly.
Sparse attention reads prompts in float32, too; vLLM has none on a CPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.ascend.environment import CPU, NPU
from tests.ascend.matrix import EXACT, MODES, SEEDED, Case, by_day_or_night
from tests.ascend.processes import ACCEPTED, DRAFTED, assert_same_drafts, tokens_of
from tests.ascend.prompts import NUM_PROMPTS, prompts
from tests.ascend.targets.mla import MLA_BY_NIGHT, MLA_CASES, MLA_ENVIRONMENT
from tests.ascend.targets.sparse import SPARSE_BY_NIGHT, SPARSE_CASES, SPARSE_MODEL
from tests.ascend.test_matrix import (
    NPU_PLATFORM,
    assert_close,
    assert_some_drafts_are_accepted,
    tokens,
)
from tests.engines import assert_same
from tests.npu.answers import compare

CHUNKED = MLA_CASES["deepseek-chunked"]
ENVIRONMENT = {**NPU, **MLA_ENVIRONMENT}
TOLERANCE = 0.02
pytestmark = pytest.mark.timeout(900)


# Those in float32 whose prompts are read alike.
DENSE = (*(f"deepseek-{mode}" for mode in MODES), *MLA_BY_NIGHT)
CASES = {name: MLA_CASES[name] for name in DENSE} | SPARSE_CASES
# By day sparse attention runs without graphs, in the same layers, and dense attention with both
# kinds of graphs.
BY_NIGHT = {*SPARSE_BY_NIGHT, *MLA_BY_NIGHT, "deepseek-eager"}


def without_speculation(case: Case, requests: tuple[str, ...]) -> Case:
    """Return the reference of a case."""
    engine = {**case.engine, "model": case.arguments()["model"]}
    return Case(method=None, mode="eager", engine=engine, requests=requests)


def reference_of(case: Case) -> Case:
    """Return the reference of one of :data:`CASES`.

    One for all of dense attention, and one for all of sparse attention, that are asked for the
    same: how prompts are read makes no difference to the latter.
    """
    kinds = tuple(kind for kind in case.requests if kind in (*EXACT, "logprobs"))
    if case not in SPARSE_CASES.values():
        kinds = SEEDED if set(kinds) <= set(SEEDED) else (*EXACT, "logprobs")
        return without_speculation(MLA_CASES["deepseek-eager"], kinds)
    return Case(method=None, mode="eager", engine={"model": SPARSE_MODEL}, requests=kinds)


@pytest.mark.parametrize("name", by_day_or_night(CASES, BY_NIGHT))
def test_answers_are_those_without_speculation(name: str, run_engine: Any) -> None:
    case = CASES[name]
    outcome = run_engine(case, ENVIRONMENT)
    assert outcome["platform"] == NPU_PLATFORM
    answers = outcome["answers"]
    expected = run_engine(reference_of(case), ENVIRONMENT)["answers"]
    if "alone" in answers:
        assert_same(tokens(answers["alone"]), tokens(expected["greedy"]))
    for kind in [kind for kind in case.requests if kind in EXACT]:
        assert_same(tokens(answers[kind]), tokens(expected[kind]))
    if "logprobs" in answers:
        assert_close(answers["logprobs"], expected["logprobs"])
    assert_some_drafts_are_accepted(outcome["counters"])


IN_GRAPHS = [
    *(f"{target}-{mode}" for target in ("deepseek", "sparse") for mode in MODES if mode != "eager"),
    *("deepseek-stock", "sparse-stock"),
]


@pytest.mark.parametrize("name", by_day_or_night(IN_GRAPHS, BY_NIGHT))
def test_drafts_are_those_of_an_engine_without_graphs(name: str, run_engine: Any) -> None:
    found, wanted = CASES[name], CASES[f"{name.partition('-')[0]}-eager"]
    assert_same_drafts(run_engine(found, ENVIRONMENT), run_engine(wanted, ENVIRONMENT), "greedy")


def test_sparse_answers_are_those_of_plain_pytorch(run_engine: Any) -> None:
    """Up to 2048 tokens the indexer selects everything, so that attention is dense."""
    import torch
    from transformers import AutoTokenizer

    from examples.zoo.training import mla_sparse

    reference = reference_of(SPARSE_CASES["sparse-eager"])
    answers = tokens_of(run_engine(reference, ENVIRONMENT), "greedy")
    tokenizer = AutoTokenizer.from_pretrained(SPARSE_MODEL)
    model = mla_sparse.load(Path(SPARSE_MODEL))
    for text, answer in zip(prompts(NUM_PROMPTS), answers, strict=True):
        prompt = tokenizer(text).input_ids
        hidden = model(torch.tensor([prompt + answer]))
        best = model.logits(hidden)[0].argmax(-1)
        assert best[len(prompt) - 1 : -1].tolist() == answer


def test_seeds_repeat_in_other_batches_and_modes(run_engine: Any) -> None:
    outcomes = [run_engine(MLA_CASES[f"deepseek-{mode}"], ENVIRONMENT) for mode in MODES]
    seeded = [tokens(outcome["answers"]["seeded"]) for outcome in outcomes]
    seeded += [tokens(o["answers"]["seeded_in_twos"]) for o in outcomes if len(o["answers"]) > 2]
    assert len(seeded) == len(MODES) + 1
    for others in seeded[1:]:
        assert_same(others, seeded[0])
    assert seeded[0] != tokens(outcomes[0]["answers"]["greedy"])


def test_seeds_repeat_with_sparse_attention(run_engine: Any) -> None:
    modes = ("eager", "full_decode_only")
    outcomes = [run_engine(SPARSE_CASES[f"sparse-{mode}"], ENVIRONMENT) for mode in modes]
    first, second = (tokens(outcome["answers"]["seeded"]) for outcome in outcomes)
    assert_same(second, first)
    assert first != tokens(outcomes[0]["answers"]["greedy"])


def test_as_many_drafts_are_accepted_as_on_a_cpu(run_engine: Any) -> None:
    """About: prompts are read in bfloat16 here, so that texts may differ."""
    case = MLA_CASES["deepseek-eager"]
    here = run_engine(case, ENVIRONMENT)["counters_of"]["greedy"]
    there = run_engine(case.for_cpu(), CPU)["counters_of"]["greedy"]
    assert here[DRAFTED] == pytest.approx(there[DRAFTED], rel=TOLERANCE)
    assert here[ACCEPTED] == pytest.approx(there[ACCEPTED], rel=TOLERANCE)
    assert here[ACCEPTED] > 0


def test_prompts_in_pieces(run_engine: Any) -> None:
    """In bfloat16, where answers may part at a tie."""
    outcome = run_engine(CHUNKED, ENVIRONMENT)
    reference = without_speculation(CHUNKED, ("greedy",))
    expected = run_engine(reference, ENVIRONMENT, logprobs=5)["answers"]["greedy"]
    for actual, wanted in zip(outcome["answers"]["greedy"], expected, strict=True):
        found = compare(actual, wanted)
        assert found.is_right, found
    assert_some_drafts_are_accepted(outcome["counters"])
