"""A DeepSeek V4 with its MTP layer, on the NPU: compressed attention and several residual streams.

Its weights are random. Answers are compared with those of the same NPU without speculation, in
bfloat16 up to ties: vllm-ascend's pages and its Hadamard matrix are made for bfloat16. In float32
there is every part but the indexer, and answers are equal.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from filelock import FileLock

from tests.ascend.environment import NPU
from tests.ascend.matrix import Case
from tests.ascend.processes import tokens_of
from tests.ascend.prompts import NUM_PROMPTS, prompts
from tests.ascend.targets.compressed import FLOAT32_SHAPE, CompressedShape, write
from tests.ascend.test_matrix import NPU_PLATFORM, assert_some_drafts_are_accepted
from tests.engines import assert_same, session_folder
from tests.npu.answers import compare

pytestmark = pytest.mark.timeout(900)
# The first, see MLA_ENVIRONMENT in targets/mla.py. The second has engines copied from a process
# that no others are copied from: with what those have imported, experts were chosen by vLLM's own
# code, whose op is not there.
ENVIRONMENT = {**NPU, "VLLM_USE_BYTECODE_HOOK": "0", "TESTS_COPY": "compressed"}
TOLERANCE = 1e-3  # nats
SHAPES = {"bfloat16": CompressedShape(), "float32": FLOAT32_SHAPE}
# vLLM's engine sets block_size to the smallest of all caches (vllm/v1/engine/core.py), where
# vllm-ascend's layers, asked again, look their own sizes up: in one process it fails with KeyError.
ANOTHER_PROCESS = {"distributed_executor_backend": "mp"}
BY_DAY = ("float32", 3, "eager")
CASES = [
    pytest.param(*one, marks=() if one == BY_DAY else pytest.mark.nightly)
    for one in (
        *((dtype, k, "eager") for dtype in SHAPES for k in (1, 2, 3)),
        *((dtype, 3, "full_decode_only") for dtype in SHAPES),
    )
]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return ``case(dtype, k, mode)`` of an engine; without speculation if k is None."""
    folder = session_folder(tmp_path_factory, "compressed")
    folder.mkdir(exist_ok=True)

    def make(dtype: str, k: int | None, mode: str = "eager") -> Case:
        model = folder / dtype
        with FileLock(folder / f"{dtype}.lock"):
            if not model.exists():
                write(model, SHAPES[dtype], getattr(torch, dtype))
        engine = {"dtype": dtype, "model": str(model), **ANOTHER_PROCESS}
        if k is None:
            return Case(method=None, mode=mode, engine=engine)
        options = {"model": str(model), "num_speculative_tokens": k}
        return Case(method="mtp", mode=mode, engine=engine, options=options)

    return make


@pytest.mark.parametrize(("dtype", "k", "mode"), CASES)
def test_answers_are_those_without_speculation(
    dtype: str, k: int, mode: str, case: Any, run_engine: Any
) -> None:
    outcome = run_engine(case(dtype, k, mode), ENVIRONMENT)
    assert outcome["platform"] == NPU_PLATFORM
    full = outcome["graph_steps_of"]["greedy"].get("full", 0)
    assert (full > 0) == (mode == "full_decode_only")
    assert_some_drafts_are_accepted(outcome["counters"])
    expected = run_engine(case(dtype, None), ENVIRONMENT, logprobs=5)
    if dtype == "float32":
        assert_same(tokens_of(outcome, "greedy"), tokens_of(expected, "greedy"))
    pairs = zip(outcome["answers"]["greedy"], expected["answers"]["greedy"], strict=True)
    for actual, wanted in pairs:
        found = compare(actual, wanted)
        assert found.is_right, found


def test_answers_are_those_of_transformers(case: Any, run_engine: Any) -> None:
    """In float32 and without speculation; an implementation that shares nothing with the ops.

    Of each token of an answer, and of the next likely ones, the logarithms of probabilities.
    """
    # vLLM puts a class of its own into AutoConfig.
    from transformers import DeepseekV4ForCausalLM, PreTrainedTokenizerFast

    reference = case("float32", None)
    answers = run_engine(reference, ENVIRONMENT, logprobs=5)["answers"]["greedy"]
    folder = reference.arguments()["model"]
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = DeepseekV4ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for text, answer in zip(prompts(NUM_PROMPTS), answers, strict=True):
        prompt = tokenizer(text).input_ids
        with torch.no_grad():
            logits = model(torch.tensor([prompt + answer["tokens"]])).logits[0]
        told = logits[len(prompt) - 1 : -1].log_softmax(-1)
        assert told.argmax(-1).tolist() == answer["tokens"]
        for place, likely in zip(told, answer["logprobs"], strict=True):
            expected = {token: float(place[int(token)]) for token in likely}
            assert likely == pytest.approx(expected, abs=TOLERANCE)
