"""A GPU's way to have trees, in engines on a CPU (``triton_attention.py``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from vllm.v1.attention.backends import triton_attn

from tests.e2e.scripted_trees import PARENTS, TreeScript
from tests.e2e.test_trees import BLOCK, TREES, accepted, ask, spec_of
from tests.e2e.triton_attention import RunnerWithTriton, kernels_in_pytorch, triton_attention
from tests.engines import assert_same, token_ids
from tests.zoo import EVERY, ZOO, target_of
from vllm_ascend_spec.methods.ngram import drafter as ngram
from vllm_ascend_spec.worker import cuda_trees

__all__ = ["accepted"]


@pytest.fixture(scope="module", autouse=True)
def on_triton() -> Iterator[None]:
    with kernels_in_pytorch():
        yield


@pytest.fixture(scope="module")
def make_tree(make_engine: Any) -> Any:
    """Return ``make(method, tree=None, **arguments) -> LLM``, which has a GPU's trees."""

    def make(method: str, tree: int | None = None, **arguments: Any) -> Any:
        options = {"ascend_spec": TREES[method][0] if tree is None else {"tree": tree}}
        with triton_attention():
            return make_engine(spec_of(method), additional_config=options, **arguments)

    return make


@pytest.fixture
def scripted(
    make_engine: Any,
    make_tree: Any,
    expect: Any,
    prompts: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Any, list[list[int]], TreeScript]:
    """An engine whose drafts follow a script, the answers that it has to give, and the script."""
    tokenizer = make_engine().get_tokenizer()
    answers = token_ids(expect(prompts[:16]))
    texts = [tokenizer.encode(p) + a for p, a in zip(prompts, answers, strict=False)]
    script = TreeScript(texts)
    monkeypatch.setattr(ngram.NgramDrafter, "find_trees", script.method())
    return make_tree("ngram", len(PARENTS), block_size=BLOCK), answers, script


@pytest.mark.parametrize("batch", [1, 8])
def test_every_node_ends_the_accepted_path(
    batch: int, scripted: Any, generate: Any, prompts: list[str], accepted: list[list[int]]
) -> None:
    """Across the ends of blocks; by night in Triton's interpreter, too."""
    llm, answers, script = scripted
    assert_same(ask(llm, generate, prompts[:16], batch), answers)
    assert script.ended_at == set(range(len(PARENTS)))
    assert {rows[-1] for rows in accepted} == set(range(len(PARENTS) + 1))


def test_every_step_runs_our_kernel_in_full_graphs(
    scripted: Any, generate: Any, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the step before wrote into what a graph reads."""
    build = RunnerWithTriton._build_attention_metadata

    def captured(self: Any, *args: Any, **kwargs: Any) -> Any:
        built = build(self, *args, **kwargs)
        self._describe(built[0])
        return built

    monkeypatch.setattr(RunnerWithTriton, "_build_attention_metadata", captured)
    llm, answers, _ = scripted
    monkeypatch.setattr(triton_attn, "unified_attention", None)
    assert_same(ask(llm, generate, prompts[:16]), answers)


def test_answers_would_differ_without_the_accepted_keys(
    scripted: Any, generate: Any, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control."""
    monkeypatch.setattr(RunnerWithTriton, "keep_accepted", lambda *_: None)
    llm, answers, _ = scripted
    assert ask(llm, generate, prompts[:16]) != answers


def test_answers_would_differ_if_siblings_were_seen(
    scripted: Any, generate: Any, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control."""
    monkeypatch.setattr(cuda_trees, "bits_of", lambda parents: [-1] * (len(parents) + 1))
    llm, answers, _ = scripted
    assert ask(llm, generate, prompts[:16]) != answers


@pytest.mark.parametrize("batch", [8, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "method",
    [pytest.param(m, marks=() if m == "eagle3" else pytest.mark.nightly) for m in TREES],
)
def test_greedy(
    method: str,
    batch: int,
    make_tree: Any,
    expect: Any,
    generate: Any,
    prompts: list[str],
    accepted: list[list[int]],
) -> None:
    texts = prompts[: 4 if batch == 1 else 24]
    expected = token_ids(expect(texts, {"model": target_of(EVERY[method])}))
    assert_same(ask(make_tree(method), generate, texts, batch), expected)
    assert any(rows != list(range(len(rows))) for rows in accepted)


def test_pieces_of_prompts_preemption_and_the_prefix_cache(
    make_tree: Any, expect: Any, generate: Any, prompts: list[str]
) -> None:
    """A second pass finds answers and prompts in the cache, where no rejected row may be."""
    llm = make_tree(
        "ngram",
        max_num_batched_tokens=48,
        block_size=BLOCK,
        num_gpu_blocks_override=24,
        enable_prefix_caching=True,
    )
    outputs = expect(prompts[:12])
    assert_same(ask(llm, generate, prompts[:12]), token_ids(outputs))
    longer = [prompt + output.text for prompt, output in zip(prompts, outputs, strict=False)]
    assert_same(ask(llm, generate, longer), token_ids(expect(longer)))


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["target-gpt-oss", "target-qwen3-moe", "target-gemma4"])
def test_windows_sinks_and_heads_of_several_sizes(
    name: str, make_tree: Any, make_engine: Any, generate: Any, prompts: list[str]
) -> None:
    """Windows of 64 tokens, sinks, experts; the zoo's prompts are longer than a window."""
    model = {"model": str(ZOO / name)}
    expected = ask(make_engine(**model), generate, prompts[:12])
    assert_same(ask(make_tree("ngram", **model), generate, prompts[:12], 8), expected)
