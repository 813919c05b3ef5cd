"""A GPU runner's part in trees, with layers and metadata of vLLM's classes, on a CPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.model_executor.layers.attention import Attention, ChunkedLocalAttention
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends import triton_attn
from vllm.v1.attention.backends.triton_attn import TritonAttentionImpl

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.upstream.limits import NO_TREES
from vllm_ascend_spec.worker import cpu_tree_attention, cpu_trees, cuda_trees, kept_rows
from vllm_ascend_spec.worker.cuda_tree_attention import ATTRIBUTE, TreeAttentionImpl, TreeRows
from vllm_ascend_spec.worker.tree_plan import StepTrees, bits_of
from vllm_ascend_spec.worker.trees import TreesMixin

pytestmark = pytest.mark.skipif(NO_TREES is not None, reason=str(NO_TREES))
HEADS, KV_HEADS, SIZE, BLOCK = 4, 2, 32, 16
COMB = (-1, 0, 1, -1, -1)
CHAIN = (-1, 0, 1, 2, 3)


def layer_of(kind: type = Attention, **options: Any) -> Any:
    """Return a layer with vLLM's Triton attention."""
    layer: Any = kind.__new__(kind)
    torch.nn.Module.__init__(layer)
    given = {"alibi_slopes": None, "sliding_window": None, "kv_cache_dtype": "auto", **options}
    layer.impl = TritonAttentionImpl(HEADS, SIZE, SIZE**-0.5, KV_HEADS, **given)
    layer.kv_cache = torch.zeros(12, KV_HEADS, BLOCK, 2 * SIZE)
    return layer


class Base:
    """vLLM's part: a batch of requests, in one group of layers."""

    metadata: Any

    def load_model(self) -> None:
        self.is_loaded = True

    def _build_attention_metadata(self, **_: Any) -> Any:
        self.metadata = metadata_of(self.counts, self.contexts)
        return dict.fromkeys(self.compilation_config.static_forward_context, self.metadata), None

    counts: list[int]
    contexts: list[int]
    compilation_config: Any


class Runner(cuda_trees.CudaTreesMixin, TreesMixin, Base):
    """Two layers of a target, and one of a draft."""

    def __init__(self, max_num_tokens: int = 64, **options: Any) -> None:
        target = torch.nn.ModuleDict({"a": layer_of(**options), "b": layer_of()})
        self.layers = {"a": target["a"], "b": target["b"], "draft": layer_of()}
        self.compilation_config = SimpleNamespace(
            static_forward_context={**self.layers, "experts": torch.nn.Identity()}
        )
        self.vllm_config = SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=4))
        self.model_config = SimpleNamespace(enable_sleep_mode=False)
        self.device, self.dtype, self.max_num_tokens = torch.device("cpu"), torch.float32, 64
        self.max_num_tokens = max_num_tokens
        self.get_model = lambda: target
        self.load_model()


def metadata_of(counts: list[int], contexts: list[int]) -> Any:
    starts = torch.tensor([0, *counts]).cumsum(0).int()
    lengths = torch.tensor([a + b for a, b in zip(counts, contexts, strict=True)]).int()
    slots = [
        (3 * request + 1 + place // BLOCK) * BLOCK + place % BLOCK
        for request, (count, context) in enumerate(zip(counts, contexts, strict=True))
        for place in range(context, context + count)
    ]
    return SimpleNamespace(
        num_actual_tokens=sum(counts),
        query_start_loc=starts,
        seq_lens=lengths,
        block_table=torch.arange(1, 1 + 3 * len(counts)).view(-1, 3).int(),
        slot_mapping=torch.tensor(slots),
    )


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    asked = SimpleNamespace(has_trees=True, max_k=5, sources={"tree": "the option"})
    monkeypatch.setattr(cuda_trees, "speculation_of", lambda _: asked)
    return asked


def step(runner: Runner, *parents: tuple[int, ...], context: int = 20) -> TreeRows | None:
    """Build the metadata of a step in which each request has one row and its drafts."""
    runner.counts = [len(own) + 1 for own in parents]
    runner.contexts = [context] * len(parents)
    starts = [0, *torch.tensor(runner.counts).cumsum(0).tolist()]
    runner._trees = StepTrees(parents, starts, [len(own) for own in parents])
    runner._build_attention_metadata(logits_indices=torch.arange(starts[-1]))
    return getattr(runner.metadata, ATTRIBUTE, None)


def dummy(runner: Runner, num_reqs: int, width: int = 6) -> TreeRows:
    """Build the metadata of a dummy run, such as a capture's."""
    runner.counts, runner.contexts = [width] * num_reqs, [0] * num_reqs
    runner._build_attention_metadata(for_cudagraph_capture=True)
    return getattr(runner.metadata, ATTRIBUTE)


def test_the_targets_attention_layers_are_taken_over_and_no_others() -> None:
    runner = Runner()
    kinds = {name: type(layer.impl) for name, layer in runner.layers.items()}
    assert kinds == {"a": TreeAttentionImpl, "b": TreeAttentionImpl, "draft": TritonAttentionImpl}
    assert runner.layers["a"].impl.kept.shape == (2, 4 * 6, KV_HEADS, SIZE)
    assert Runner(max_num_tokens=10).layers["a"].impl.kept.shape[1] == 10


def test_an_engine_without_trees_keeps_vllms(asked: Any) -> None:
    asked.has_trees = False
    runner = Runner()
    assert type(runner.layers["a"].impl) is TritonAttentionImpl
    runner.counts, runner.contexts = [4], [0]
    runner._build_attention_metadata()
    assert not hasattr(runner.metadata, ATTRIBUTE)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alibi_slopes": [1.0] * HEADS}, "ALiBi"),
        ({"sliding_window": 63}, "a sliding window below 64"),
        ({"sliding_window": 128, "chunk_lookback": 1}, "attention in chunks"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype='fp8'"),
        ({"kv_cache_dtype": "int8_per_token_head"}, "kv_cache_dtype='int8_per_token_head'"),
        ({"kv_sharing_target_layer_name": "a"}, "keys and values that layers share"),
        ({"attn_type": AttentionType.ENCODER_DECODER}, "attention to an encoder"),
    ],
)
def test_what_is_not_possible_is_refused_by_name(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=f"the option=5: not possible with {words} yet"):
        Runner(**options)


def test_attention_of_other_kinds_is_refused() -> None:
    assert cuda_trees.problem_of(layer_of()) is None
    assert cuda_trees.problem_of(layer_of(sliding_window=64)) is None
    assert cuda_trees.problem_of(layer_of(sinks=torch.zeros(HEADS), logits_soft_cap=3.0)) is None
    chunks = cuda_trees.problem_of(layer_of(ChunkedLocalAttention))
    assert chunks == "attention of ChunkedLocalAttention by TritonAttentionImpl yet"
    flash = layer_of()
    flash.impl = object()
    assert cuda_trees.problem_of(flash) == "attention of Attention by object yet"


def test_layers_of_a_cpu_are_looked_at_too() -> None:
    """Some have no keys of their own, and some have metadata of their own."""

    def on_cpu(kind: type = Attention, **options: Any) -> Any:
        layer = layer_of(kind)
        layer.impl = cpu_tree_attention.TreeAttentionImpl(
            HEADS, SIZE, SIZE**-0.5, KV_HEADS, None, None, "auto", **options
        )
        return layer

    assert cpu_trees.problem_of(on_cpu()) is None
    shared = cpu_trees.problem_of(on_cpu(kv_sharing_target_layer_name="a"))
    assert shared == "keys and values that layers share yet"
    chunks = cpu_trees.problem_of(on_cpu(ChunkedLocalAttention))
    assert chunks == "attention of ChunkedLocalAttention by TreeAttentionImpl yet"


def test_steps_without_trees_are_vllms() -> None:
    runner = Runner()
    assert step(runner, CHAIN, (), CHAIN[:2]) is None
    runner.keep_accepted(torch.zeros(1).long(), torch.zeros(1).long())
    assert all(not layer.kv_cache.any() for layer in runner.layers.values())


def test_rows_of_trees_have_bits_and_all_others_see_everything() -> None:
    rows = step(Runner(), CHAIN, COMB, ())
    assert rows is not None
    assert rows.seen.tolist() == [-1] * 6 + bits_of(COMB).tolist() + [-1]
    assert rows.kept.tolist() == list(range(13))


def test_a_graph_reads_the_step_that_replays_it() -> None:
    """It has the tensors that were there when it was captured; later ones are written to them."""
    runner = Runner()
    captured = dummy(runner, num_reqs=3)
    assert captured.seen.tolist() == [-1] * 18
    step(runner, COMB, CHAIN)
    assert captured.seen.tolist() == bits_of(COMB).tolist() + [-1] * 12
    # Padding keeps some row of the batch.
    assert captured.kept.tolist() == [*range(12), *[0] * 6]
    step(runner, CHAIN, CHAIN, CHAIN)
    assert captured.seen.tolist() == [-1] * 18
    assert captured.kept.tolist() == [0] * 18
    step(runner, COMB)
    dummy(runner, num_reqs=1)
    assert captured.seen.tolist() == [-1] * 18


def test_what_a_graph_reads_is_written_again_after_a_sleep() -> None:
    """vLLM keeps the buffers of models alone; a graph reads whatever is in the others."""
    runner = Runner()
    captured = dummy(runner, num_reqs=2)
    runner.model_config.enable_sleep_mode = True
    captured.seen.zero_()
    captured.kept.fill_(1 << 40)
    step(runner, CHAIN, CHAIN)
    assert captured.seen.tolist() == [-1] * 12
    assert captured.kept.tolist() == [0] * 12


def inputs(num_tokens: int) -> tuple[torch.Tensor, ...]:
    numbers = torch.Generator().manual_seed(num_tokens)
    heads = (HEADS, KV_HEADS, KV_HEADS)
    return tuple(torch.randn(num_tokens, count, SIZE, generator=numbers) for count in heads)


def write(runner: Runner, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Fill the cache of a layer at random, and write the rows of a step; return the cache."""
    cache = torch.randn(12, KV_HEADS, BLOCK, 2 * SIZE, generator=torch.Generator().manual_seed(1))
    slots = runner.metadata.slot_mapping
    cache[slots // BLOCK, :, slots % BLOCK] = torch.cat([key, value], dim=-1)
    return cache


def test_a_replay_attends_as_a_step_of_its_own() -> None:
    runner = Runner()
    impl = runner.layers["a"].impl
    captured = dummy(runner, num_reqs=2)
    step(runner, COMB, CHAIN)
    query, key, value = inputs(12)
    cache = write(runner, key, value)

    def attend() -> torch.Tensor:
        output = torch.zeros_like(query)
        impl.forward(None, query, key, value, cache, runner.metadata, output)
        return output

    expected, kept = attend(), impl.kept[:, :12].clone()
    assert torch.equal(kept, torch.stack([key, value]))
    impl.kept.zero_()
    setattr(runner.metadata, ATTRIBUTE, captured)
    assert torch.equal(attend(), expected)
    assert torch.equal(impl.kept[:, :12], kept)
    setattr(runner.metadata, ATTRIBUTE, captured._replace(seen=torch.full((12,), -1)))
    as_chains = attend()
    assert torch.equal(as_chains[6:], expected[6:])
    assert not torch.allclose(as_chains[5], expected[5])


@pytest.mark.parametrize("most_bytes", [1, 1 << 20])
def test_only_rows_that_verify_are_kept(monkeypatch: pytest.MonkeyPatch, most_bytes: int) -> None:
    """A prompt beside a tree: most of its rows cannot be accepted."""
    monkeypatch.setattr(kept_rows, "MOST_BYTES", most_bytes)
    runner = Runner()
    runner.counts, runner.contexts = [30, 6], [0, 20]
    runner._trees = StepTrees([(), COMB], [0, 30, 36], [0, 5])
    verified = torch.tensor([29, *range(30, 36)])
    runner._build_attention_metadata(logits_indices=verified)
    rows = getattr(runner.metadata, ATTRIBUTE)
    assert rows.kept.tolist() == [*verified.tolist(), *[0] * 17]
    query, key, value = inputs(36)
    impl = runner.layers["a"].impl
    impl.forward(None, query, key, value, write(runner, key, value), runner.metadata, query.clone())
    assert torch.equal(impl.kept[0, :7], key[verified])
    wrote: list[Any] = []
    monkeypatch.setattr(
        TreeAttentionImpl, "do_kv_cache_update", lambda _, *arguments: wrote.append(arguments)
    )
    # The second request's third row is accepted behind its first one, in every layer.
    runner.keep_accepted(torch.tensor([1, 3]), torch.tensor([30, 31]))
    assert [arguments[0] for arguments in wrote] == [runner.layers["a"], runner.layers["b"]]
    _, keys, values, cache, slots = wrote[0]
    assert torch.equal(keys, key[[30, 32]])
    assert torch.equal(values, value[[30, 32]])
    assert cache is runner.layers["a"].kv_cache
    assert slots.tolist() == runner.metadata.slot_mapping[[30, 31]].tolist()


def test_without_rows_vllms_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner()
    step(runner, CHAIN)
    called: list[Any] = []
    monkeypatch.setattr(TritonAttentionImpl, "forward", lambda *given, **_: called.append(given))
    runner.layers["a"].impl.forward(None, *inputs(6), None, runner.metadata, None)
    assert len(called) == 1
    assert not runner.layers["a"].impl.fused_output_quant_supported(triton_attn.kFp8StaticTensorSym)
