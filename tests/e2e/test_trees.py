"""Drafts that are trees: the answers without speculation, whatever is accepted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams

from tests.e2e import sampled
from tests.e2e.drafts import Drafts, count, watch
from tests.e2e.scripted_trees import PARENTS, TreeScript
from tests.e2e.staggered import run_staggered
from tests.engines import assert_same, token_ids
from tests.zoo import EVERY, ZOO, target_of
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.methods.ngram import drafter as ngram
from vllm_ascend_spec.worker import trees
from vllm_ascend_spec.worker.cpu_tree_attention import TreeAttentionImpl
from vllm_ascend_spec.worker.trees import TreesMixin

BLOCK = 32
# Each with as many drafts as the second says.
TREES: dict[str, tuple[dict[str, Any], int]] = {
    "eagle3": ({"tree": "5x3"}, 15),
    "eagle": ({"tree": "4x3"}, 12),
    "mtp": ({"tree": "3x2"}, 6),
    "draft_model": ({"tree": 7}, 7),
    "medusa": ({"tree": 12}, 12),
    "peagle": ({"tree": 9}, 9),
    "pard": ({"tree": "3x3"}, 9),
    "dflash": ({"tree": 8}, 8),
    "ngram": ({"tree": 12}, 12),
    "suffix": ({"tree": 8}, 8),
}
# One for each way in which trees are made: by a loop, by heads, from the text.
BY_DAY = ("eagle3", "medusa", "ngram")
METHODS = [
    pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly) for name in TREES
]
# Rows are scheduled, cached and thrown out alike, whoever drafts: by day a loop's and the host's.
SCHEDULED = [
    pytest.param(name, marks=() if name in ("eagle3", "ngram") else pytest.mark.nightly)
    for name in TREES
]


def spec_of(method: str) -> dict[str, Any]:
    """Return a speculative config that leaves the number of drafts to the tree."""
    return {k: v for k, v in EVERY[method].items() if k != "num_speculative_tokens"}


@pytest.fixture(scope="module")
def make_tree(make_engine: Any) -> Any:
    """Return ``make(method, **arguments) -> LLM``, which drafts trees."""

    def make(method: str, **arguments: Any) -> Any:
        options = {"ascend_spec": TREES[method][0]}
        return make_engine(spec_of(method), additional_config=options, **arguments)

    return make


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The rows of each request's accepted path, as they come."""
    found: list[list[int]] = []
    settle = TreesMixin._settle

    def watched(self: Any, metadata: Any, trees: Any) -> None:
        found.extend([row for row in rows if row >= 0] for rows in trees.output_rows.tolist())
        settle(self, metadata, trees)

    monkeypatch.setattr(TreesMixin, "_settle", watched)
    return found


def ask(llm: Any, generate: Any, prompts: list[str], batch: int | None = None) -> list[list[int]]:
    return token_ids(generate(llm, prompts, batch))


def check_trees(seen: Drafts, most: int, accepted: list[list[int]]) -> None:
    """Trees were verified, and paths beside the principal chain were accepted."""
    assert max(max(step.drafts, default=0) for step in seen.steps) == most
    beside = [rows for rows in accepted if rows != list(range(len(rows)))]
    assert len(beside) > 0.01 * len(accepted)


@pytest.mark.core
@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("method", METHODS)
def test_greedy(
    method: str,
    batch: int,
    make_tree: Any,
    expect: Any,
    generate: Any,
    prompts: list[str],
    accepted: list[list[int]],
) -> None:
    texts = prompts[: 12 if batch == 1 else 40]
    expected = token_ids(expect(texts, {"model": target_of(EVERY[method])}))
    llm = make_tree(method)
    with watch(llm) as seen:
        assert_same(ask(llm, generate, texts, batch), expected)
    check_trees(seen, TREES[method][1], accepted)


@pytest.fixture(scope="module")
def expected(plain: Any, prompts: list[str]) -> list[list[int]]:
    return sampled.ask(plain, prompts)


@pytest.mark.parametrize("method", METHODS)
def test_every_kind_of_request_with_a_seed(
    method: str, make_tree: Any, prompts: list[str], expected: Any, accepted: list[list[int]]
) -> None:
    """Penalties, bad words, grammars and the like follow the path."""
    llm = make_tree(method)
    assert_same(sampled.ask(llm, prompts[:36]), expected[:36])
    assert any(rows != list(range(len(rows))) for rows in accepted)


def test_requests_without_a_seed_are_sampled_with_hidden_ones(
    make_tree: Any, prompts: list[str], accepted: list[list[int]]
) -> None:
    llm = make_tree("eagle3")
    params = SamplingParams(temperature=1.0, max_tokens=24, ignore_eos=True)
    outputs = llm.generate([prompts[0]] * 8, params, use_tqdm=False)
    assert len({tuple(output.outputs[0].token_ids) for output in outputs}) == 8
    assert any(len(rows) > 1 for rows in accepted)


@pytest.mark.parametrize("method", SCHEDULED)
def test_pieces_of_prompts_and_the_prefix_cache(
    method: str, make_tree: Any, expect: Any, generate: Any, prompts: list[str]
) -> None:
    """No rejected row gets into the cache: a second pass finds answers and prompts there."""
    chunks = {"max_num_batched_tokens": 48, "max_num_seqs": 4}
    llm = make_tree(method, enable_prefix_caching=True, block_size=BLOCK, **chunks)
    outputs = expect(prompts[:16], {"model": target_of(EVERY[method])})
    assert_same(ask(llm, generate, prompts[:16]), token_ids(outputs))
    before = count(llm, "vllm:prefix_cache_hits")
    longer = [prompt + output.text for prompt, output in zip(prompts, outputs, strict=False)]
    further = token_ids(expect(longer, {"model": target_of(EVERY[method])}))
    assert_same(ask(llm, generate, longer), further)
    assert count(llm, "vllm:prefix_cache_hits") > before


@pytest.mark.parametrize("method", SCHEDULED)
def test_preemption(
    method: str, make_tree: Any, expect: Any, generate: Any, prompts: list[str]
) -> None:
    llm = make_tree(
        method, block_size=BLOCK, num_gpu_blocks_override=24, enable_prefix_caching=False
    )
    before = count(llm, "vllm:num_preemptions")
    expected = token_ids(expect(prompts[:24], {"model": target_of(EVERY[method])}))
    assert_same(ask(llm, generate, prompts[:24]), expected)
    assert count(llm, "vllm:num_preemptions") > before


@pytest.mark.parametrize("method", SCHEDULED)
def test_neighbours_that_come_and_go(
    method: str, make_tree: Any, expect: Any, prompts: list[str]
) -> None:
    """Beside requests that begin, end, limit their drafts, and reach the end of their context."""
    llm = make_tree(method)

    def greedy(length: int, **options: Any) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=length, ignore_eos=True, **options)

    limited = {"extra_args": {"speculation": 2}}
    asked = [
        (0, prompts[0], greedy(48)),
        (0, prompts[1], greedy(5)),
        (2, prompts[2], greedy(48, **limited)),
        (3, prompts[3], greedy(48, extra_args={"speculation": "off"})),
        (5, prompts[4], greedy(400)),
        (9, {"prompt_token_ids": [7]}, greedy(9)),
        (11, prompts[5], greedy(48)),
    ]
    answers = run_staggered(llm, asked)
    mine = (0, 2, 3, 6)
    texts = [asked[index][1] for index in mine]
    expected = token_ids(expect(texts, {"model": target_of(EVERY[method])}))
    assert_same([answers[index] for index in mine], expected)


def test_aborted_neighbours(make_tree: Any, expect: Any, prompts: list[str]) -> None:
    """Those that stay are answered as ever, also in the places of those that went."""
    llm = make_tree("eagle3")
    engine, answers = llm.llm_engine, {}
    params = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True)
    for index, prompt in enumerate(prompts[:12]):
        engine.add_request(f"aborted-{index}", prompt, params)
    step = 0
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                answers[output.request_id] = list(output.outputs[0].token_ids)
        step += 1
        if step in (3, 5):
            engine.abort_request([f"aborted-{step - 3 + index}" for index in (0, 4)])
    stayed = [index for index in range(12) if index not in (0, 2, 4, 6)]
    expected = token_ids(expect([prompts[index] for index in stayed]))
    assert_same([answers[f"aborted-{index}"] for index in stayed], expected)


@pytest.mark.parametrize("method", SCHEDULED)
def test_the_end_of_the_context(
    method: str, make_tree: Any, expect: Any, generate: Any, prompts: list[str]
) -> None:
    short = {"max_model_len": 160}
    model = {"model": target_of(EVERY[method])}
    expected = token_ids(expect(prompts[:16], {**short, **model}, max_tokens=200))
    llm = make_tree(method, **short)
    assert_same(token_ids(generate(llm, prompts[:16], max_tokens=200)), expected)


# The same attention, called from compiled code.
@pytest.mark.nightly
@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("method", TREES)
def test_compiled(
    method: str,
    batch: int,
    make_tree: Any,
    expect: Any,
    generate: Any,
    prompts: list[str],
    accepted: list[list[int]],
) -> None:
    """torch.compile rounds differently than eager, so both sides are compiled here."""
    engine = {"enforce_eager": False, "model": target_of(EVERY[method])}
    expected = token_ids(expect(prompts[:24], engine))
    llm = make_tree(method, enforce_eager=False)
    assert_same(ask(llm, generate, prompts[:24], batch), expected)
    assert any(rows != list(range(len(rows))) for rows in accepted)


def test_logprobs_are_those_of_the_path(
    make_tree: Any, expect: Any, generate: Any, prompts: list[str], accepted: list[list[int]]
) -> None:
    expected = expect(prompts[:8], logprobs=2)
    actual = generate(make_tree("eagle3"), prompts[:8], logprobs=2)
    assert any(rows != list(range(len(rows))) for rows in accepted)
    assert_same(token_ids(actual), token_ids(expected))
    for ours, theirs in zip(actual, expected, strict=True):
        for a, b in zip(ours.logprobs, theirs.logprobs, strict=True):
            assert a.keys() == b.keys()
            for token in a:
                assert a[token].logprob == pytest.approx(b[token].logprob, abs=2e-4)


@pytest.fixture
def scripted(
    make_engine: Any, expect: Any, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, list[list[int]], TreeScript]:
    """An engine whose drafts follow a script, the answers that it has to give, and the script."""
    tokenizer = make_engine().get_tokenizer()
    answers = token_ids(expect(prompts[:16]))
    texts = [tokenizer.encode(p) + a for p, a in zip(prompts, answers, strict=False)]
    script = TreeScript(texts)
    monkeypatch.setattr(ngram.NgramDrafter, "find_trees", script.method())
    options = {"ascend_spec": {"tree": len(PARENTS)}}
    llm = make_engine(spec_of("ngram"), additional_config=options, block_size=BLOCK)
    return llm, answers, script


@pytest.mark.parametrize("batch", [1, 8])
def test_every_node_ends_the_accepted_path(
    batch: int, scripted: Any, generate: Any, prompts: list[str], accepted: list[list[int]]
) -> None:
    """Across the ends of blocks, as answers are longer than one."""
    llm, answers, script = scripted
    assert_same(ask(llm, generate, prompts[:16], batch), answers)
    assert script.ended_at == set(range(len(PARENTS)))
    assert {rows[-1] for rows in accepted} == set(range(len(PARENTS) + 1))


def test_without_the_accepted_keys_answers_would_differ(
    scripted: Any, generate: Any, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the keys of the principal chain stay, whatever is accepted."""
    monkeypatch.setattr(TreeAttentionImpl, "keep_path", lambda *_: None)
    llm, answers, script = scripted
    assert ask(llm, generate, prompts[:16]) != answers
    assert script.turn


def words_of(outputs: Any) -> list[list[int]]:
    return token_ids([output.outputs[0] for output in outputs])


def follow_a_grammar(
    make_engine: Any, prompts: list[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[list[int]], list[list[int]], TreeScript]:
    """Return answers in words of a grammar by scripted trees, those expected, and the script."""
    words = StructuredOutputsParams(regex=r"[a-z]{3,9}( [a-z]{3,9}){12}")
    params = SamplingParams(temperature=0, max_tokens=64, structured_outputs=words)
    plain = make_engine()
    expected = words_of(plain.generate(prompts, params, use_tqdm=False))
    tokenizer = plain.get_tokenizer()
    script = TreeScript([tokenizer.encode(p) + a for p, a in zip(prompts, expected, strict=True)])
    monkeypatch.setattr(ngram.NgramDrafter, "find_trees", script.method())
    llm = make_engine(spec_of("ngram"), additional_config={"ascend_spec": {"tree": len(PARENTS)}})
    return words_of(llm.generate(prompts, params, use_tqdm=False)), expected, script


def test_a_grammar_follows_each_path(
    make_engine: Any,
    prompts: list[str],
    accepted: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    actual, expected, script = follow_a_grammar(make_engine, prompts[:16], monkeypatch)
    assert_same(actual, expected)
    assert script.ended_at == set(range(len(PARENTS)))
    assert {rows[-1] for rows in accepted} == set(range(len(PARENTS) + 1))


def test_a_grammar_that_reads_a_tree_as_one_text_goes_wrong(
    make_engine: Any,
    prompts: list[str],
    accepted: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: the scheduler does not learn how drafts hang together."""
    monkeypatch.setattr(trees, "attach_parents", lambda *_: None)
    follow_a_grammar(make_engine, prompts[:16], monkeypatch)
    assert {rows[-1] for rows in accepted} != set(range(len(PARENTS) + 1))


def keys_after(llm: Any, tokens: list[int], length: int) -> tuple[list[int], torch.Tensor]:
    """Answer a prompt; return the answer and the cached keys and values of the text in all layers.

    Returns:
        the answer, and [num_layers, num_tokens, num_heads, 2 * head_size] of all tokens that a
        block was allocated for.
    """
    runner = llm.llm_engine.model_executor.driver_worker.worker.model_runner
    execute, blocks = runner.execute_model, []

    def watched(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        found = execute(scheduler_output, *args, **kwargs)
        if runner.input_batch.num_reqs:
            table = runner.input_batch.block_table[0]
            blocks[:] = table.block_table.np[0, : table.num_blocks_per_row[0]].tolist()
        return found

    params = SamplingParams(temperature=0, max_tokens=length, ignore_eos=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "execute_model", watched)
        (output,) = llm.generate({"prompt_token_ids": tokens}, params, use_tqdm=False)
    layers = runner.compilation_config.static_forward_context
    caches = [layer.kv_cache for name, layer in layers.items() if name.startswith("model.layers.")]
    kept = [cache[blocks].transpose(1, 2).flatten(0, 1) for cache in caches[: num_layers(llm)]]
    return list(output.outputs[0].token_ids), torch.stack(kept)


def num_layers(llm: Any) -> int:
    return llm.model_config.hf_config.num_hidden_layers


def test_keys_and_values_are_those_of_a_prompt(
    scripted: Any, make_engine: Any, prompts: list[str], accepted: list[list[int]]
) -> None:
    """After every way to accept, across blocks; the prompt is the whole text."""
    llm, answers, _ = scripted
    plain = make_engine(block_size=BLOCK)
    tokenizer = plain.get_tokenizer()
    for prompt, answer in zip(prompts[:8], answers, strict=False):
        text = tokenizer.encode(prompt)
        found, ours = keys_after(llm, text, len(answer))
        assert found == answer
        whole = [*text, *answer[:-1]]
        _, theirs = keys_after(plain, whole, 1)
        # Within a block the kernel orders them as it likes, so only full ones can be compared.
        full = len(whole) // BLOCK * BLOCK
        assert full > len(text)
        torch.testing.assert_close(ours[:, :full], theirs[:, :full], atol=2e-4, rtol=2e-4)
    assert any(rows != list(range(len(rows))) for rows in accepted)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (
            {"model": str(ZOO / "target-qwen3-moe"), "enable_return_routed_experts": True},
            "enable_return_routed_experts, which would tell the experts of other drafts",
        ),
        ({"kv_offloading_size": 0.1}, "a KV connector yet"),
    ],
)
def test_what_would_take_the_rows_of_other_drafts_is_refused(
    arguments: dict[str, Any], cause: str, make_tree: Any
) -> None:
    with pytest.raises(ConfigError, match=f"not possible with {cause}"):
        make_tree("ngram", **arguments)
