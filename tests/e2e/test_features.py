"""Features of the engine beside speculation: a table of what is asked, every method in turn.

What a request asks of its logits is in test_request_options.py, chunked prefill and preemption are
in test_greedy_equality.py, seeds in test_seeds.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from vllm import SamplingParams
from vllm.lora.request import LoRARequest
from vllm.sampling_params import StructuredOutputsParams

from tests.e2e.drafts import watch
from tests.e2e.lora import write_adapter
from tests.engines import token_ids
from tests.marks import requires_lora
from tests.zoo import EVERY, KINDS

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "size": {"type": "integer"}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
ARGUMENTS: dict[str, Any] = {"max_num_seqs": 16, "block_size": 32, "enable_prefix_caching": True}


def greedy(max_tokens: int = 32, **options: Any) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, **options)


def rounded(places: list[Any]) -> list[dict[int, float]]:
    """Return the log-probabilities of every place, to what float32 keeps of them."""
    return [{t: round(p.logprob, 3) for t, p in (place or {}).items()} for place in places]


def prompt_logprobs(llm: Any, prompts: list[str]) -> Any:
    outputs = llm.generate(prompts[:4], greedy(8, prompt_logprobs=1), use_tqdm=False)
    return [rounded(output.prompt_logprobs) for output in outputs]


def several_answers(llm: Any, prompts: list[str]) -> Any:
    """``n`` answers to a prompt, each of which is known: one token is left to draw from."""
    parameters = SamplingParams(n=3, temperature=1.0, top_k=1, max_tokens=32, ignore_eos=True)
    outputs = llm.generate(prompts[:3], parameters, use_tqdm=False)
    assert {len(output.outputs) for output in outputs} == {3}
    return [token_ids(output.outputs) for output in outputs]


def strict_json(llm: Any, prompts: list[str]) -> Any:
    """Sixteen at once, whose grammars end at different steps."""
    bound = StructuredOutputsParams(json=SCHEMA)
    parameters = SamplingParams(temperature=0, max_tokens=48, structured_outputs=bound)
    outputs = [o.outputs[0] for o in llm.generate(prompts[:16], parameters, use_tqdm=False)]
    for output in outputs:
        if output.finish_reason == "stop":
            assert set(json.loads(output.text)) == {"name", "size"}
    assert sum(output.finish_reason == "stop" for output in outputs) > 0
    return token_ids(outputs)


def abort(llm: Any, prompts: list[str]) -> Any:
    """Requests end in the midst of their drafts; the others do not notice, and no block is lost."""
    engine = llm.llm_engine
    pool = engine.engine_core.engine_core.scheduler.kv_cache_manager.block_pool
    free, answers = pool.get_num_free_blocks(), {}
    for index, prompt in enumerate(prompts[:8]):
        engine.add_request(f"abort-{index}", prompt, greedy())
    for step in range(200):
        if step in {3, 4, 9}:
            engine.abort_request([f"abort-{step % 8}"])
        for output in engine.step():
            if output.finished:
                answers[output.request_id] = list(output.outputs[0].token_ids)
        if not engine.has_unfinished_requests():
            break
    assert pool.get_num_free_blocks() == free
    return {f"abort-{index}": answers[f"abort-{index}"] for index in (0, 2, 5, 6, 7)}


# What is the same with speculation and without.
SAME: dict[str, Callable[[Any, list[str]], Any]] = {
    "prompt logprobs": prompt_logprobs,
    "several answers": several_answers,
    "strict json": strict_json,
    "abort": abort,
}


@pytest.fixture(scope="module")
def reference(make_engine: Any) -> Any:
    return make_engine(**ARGUMENTS)


@pytest.fixture(scope="module")
def known(reference: Any, prompts: list[str]) -> Callable[[str], Any]:
    """Return what an engine without speculation makes of a feature, worked out once."""
    results: dict[str, Any] = {}

    def result(feature: str) -> Any:
        if feature not in results:
            results[feature] = SAME[feature](reference, prompts)
        return results[feature]

    return result


@pytest.mark.parametrize("feature", SAME)
@pytest.mark.parametrize("method", KINDS)
def test_the_same_with_speculation(
    method: str, feature: str, make_engine: Any, known: Any, prompts: list[str]
) -> None:
    llm = make_engine(EVERY[method], **ARGUMENTS)
    with watch(llm) as seen:
        actual = SAME[feature](llm, prompts)
    assert actual == known(feature)
    assert seen.acceptance.num_draft_tokens > 0


@pytest.mark.parametrize("method", KINDS)
def test_the_prefix_cache_is_found_as_often(
    method: str, make_engine: Any, prompts: list[str]
) -> None:
    """But for one block a request, which a head on hidden states has to compute again."""
    found = []
    for llm in (make_engine(**ARGUMENTS), make_engine(EVERY[method], **ARGUMENTS)):
        llm.reset_prefix_cache()
        for _ in range(2):
            outputs = llm.generate(prompts[:16], greedy(4), use_tqdm=False)
        found.append([output.num_cached_tokens for output in outputs])
    queries = sum(len(output.prompt_token_ids) for output in outputs)
    print(f"prefix cache, {method}: {sum(found[1])} of {queries}; without: {sum(found[0])}")
    for without, cached in zip(*found, strict=True):
        assert cached in {without, without - ARGUMENTS["block_size"]}
    assert sum(found[1]) > 0


@requires_lora
@pytest.mark.parametrize("method", KINDS)
def test_lora_on_the_target(
    method: str, make_engine: Any, prompts: list[str], tmp_path_factory: Any
) -> None:
    """Requests with an adapter beside requests without."""
    folder = write_adapter(tmp_path_factory.getbasetemp() / "adapter")
    adapter = LoRARequest("adapter", 1, folder)
    given = [adapter if index % 2 else None for index in range(8)]
    # vLLM's CPU kernels take no adapter for the last one: that place stays empty.
    lora = {"enable_lora": True, "max_lora_rank": 8, "max_loras": 2}

    def answers(llm: Any, which: Any) -> list[list[int]]:
        outputs = llm.generate(prompts[:8], greedy(), lora_request=which, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    plain, llm = make_engine(**lora), make_engine(EVERY[method], **lora)
    expected = answers(plain, given)
    with watch(llm) as seen:
        assert answers(llm, given) == expected
    assert seen.acceptance.num_accepted_tokens > 0
    # The adapter did something, and to its own requests only, or the comparison shows nothing.
    without = answers(plain, None)
    changed = [ours != theirs for ours, theirs in zip(expected, without, strict=True)]
    assert not any(changed[::2])
    assert sum(changed[1::2]) >= 2


def test_an_engine_that_compiles_nothing_runs_the_kernels_of_the_norm(make_engine: Any) -> None:
    found = make_engine().llm_engine.vllm_config.kernel_config.ir_op_priority
    assert found.fused_add_rms_norm == ["vllm_cpu_c", "native"]
