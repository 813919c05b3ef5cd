"""Overrides of what is wrong in vllm-ascend's classes, each beside the stock fault."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vllm_ascend_spec.patches import (
    next_token_buffer,
    npu_draft_model_padding,
    npu_mla_draft_positions,
)


@pytest.fixture
def stock_class() -> Any:
    """vllm-ascend's proposer with a draft model."""
    from vllm_ascend.spec_decode.draft_proposer import AscendDraftModelProposer

    return AscendDraftModelProposer


@pytest.fixture
def our_class() -> Any:
    """Ours."""
    from tests.methods.engine import drafter_of

    return drafter_of("draft_model", "ascend")


@pytest.fixture
def runner_classes() -> Any:
    """vllm-ascend's runner and ours."""
    from vllm_ascend.worker.model_runner_v1 import NPUModelRunner

    from vllm_ascend_spec.worker.npu import SpecNPUModelRunner

    return NPUModelRunner, SpecNPUModelRunner


def make(cls: Any, **attributes: Any) -> Any:
    """Return an object of a class with these attributes and no others."""
    made = object.__new__(cls)
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
    return made


def test_draft_model_is_wrapped_in_a_full_graph(
    stock_class: Any, our_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm_ascend.spec_decode import llm_base_proposer

    wrapped: list[Any] = []
    monkeypatch.setattr(
        llm_base_proposer, "ACLGraphWrapper", lambda runnable, *_, **__: wrapped.append(runnable)
    )
    mode = SimpleNamespace(has_full_cudagraphs=lambda: True)
    compilation = SimpleNamespace(cudagraph_mode=mode)
    attributes = {
        "method": "draft_model",
        "vllm_config": SimpleNamespace(compilation_config=compilation, model_config=None),
        "use_cuda_graph": True,
        "use_eagle": False,
        "enable_enpu": False,
        "_run_merged_draft": "all draft steps",
    }
    make(stock_class, **attributes)._maybe_share_lm_head(None)
    assert wrapped == []
    make(our_class, **attributes)._maybe_share_lm_head(None)
    assert wrapped == ["all draft steps"]


def test_eagle3_head_without_an_output_layer_takes_the_targets() -> None:
    from vllm_ascend.spec_decode.eagle_proposer import AscendEagleProposer

    from tests.methods.engine import drafter_of

    mode = SimpleNamespace(has_full_cudagraphs=lambda: False)
    compilation = SimpleNamespace(cudagraph_mode=mode)
    target = SimpleNamespace(lm_head="the target's")

    def head_of(cls: Any, *, has_own: bool) -> Any:
        drafter = make(
            cls,
            method="eagle3",
            vllm_config=SimpleNamespace(compilation_config=compilation, model_config=None),
            use_cuda_graph=False,
            model=SimpleNamespace(has_own_lm_head=has_own, lm_head="its own"),
        )
        drafter._maybe_share_lm_head(target)
        return drafter.model.lm_head

    assert head_of(AscendEagleProposer, has_own=False) == "its own"
    ours = drafter_of("eagle3", "ascend")
    assert head_of(ours, has_own=False) == "the target's"
    assert head_of(ours, has_own=True) == "its own"


def test_mtp_layers_without_an_output_layer_take_the_targets() -> None:
    from vllm_ascend.spec_decode.eagle_proposer import AscendEagleProposer

    from tests.methods.engine import drafter_of

    mode = SimpleNamespace(has_full_cudagraphs=lambda: False)
    config = SimpleNamespace(
        compilation_config=SimpleNamespace(cudagraph_mode=mode),
        model_config=SimpleNamespace(is_deepseek_mla=False),
    )
    target = SimpleNamespace(lm_head="the target's")

    def heads_of(cls: Any, **more: Any) -> tuple[Any, Any]:
        layer = SimpleNamespace(shared_head=SimpleNamespace(head="its own"))
        inner = SimpleNamespace(layers={"4": layer})
        model = SimpleNamespace(lm_head="its own", model=inner, **more)
        drafter = make(cls, method="mtp", vllm_config=config, use_cuda_graph=False, model=model)
        drafter._maybe_share_lm_head(target)
        return model.lm_head, layer.shared_head.head

    assert heads_of(AscendEagleProposer) == ("its own", "its own")
    ours = drafter_of("mtp", "ascend")
    assert heads_of(ours) == ("the target's", "the target's")
    # vllm-ascend knows whether DeepSeek's checkpoint had one.
    assert heads_of(ours, has_own_lm_head=True) == ("its own", "its own")


class Preparing:
    """Asks vllm-ascend for the cosines of each step's positions, before any step is run."""

    # Whether they are kept in vllm-ascend's buffer; sparse attention keeps none of draft steps.
    keeps = True

    def attn_update_stack_num_spec_norm(self, draft_index: int) -> tuple[None, Any]:
        cosines, sines = self.rotation(draft_index)
        return None, SimpleNamespace(cos=cosines, sin=sines)

    def dummy_run(self) -> None:
        self.captured = []
        for draft_index in range(4):
            self._prepare_dcp_draft_dummy_metadata(None, draft_index)
            self.captured.append(self.cosines(draft_index))

    def _prepare_dcp_draft_dummy_metadata(self, metadata: Any, draft_index: int) -> None:
        return None

    def cosines(self, draft_index: int) -> torch.Tensor:
        """Of the first draft step, or as a graph is captured."""
        return self.rotation(draft_index, keeps=True)[0]

    def rotation(self, draft_index: int, *, keeps: bool | None = None) -> tuple[Any, Any]:
        from vllm_ascend.ops.rotary_embedding import get_cos_and_sin_mla

        positions = torch.tensor([10, 20]) + draft_index
        return get_cos_and_sin_mla(positions, use_cache=self.keeps if keeps is None else keeps)


class OurPreparing(npu_mla_draft_positions.RotaryOverride, Preparing):
    """The same with the patch."""


class SparsePreparing(Preparing):
    """Sparse attention."""

    keeps = False


class OurSparsePreparing(npu_mla_draft_positions.RotaryOverride, SparsePreparing):
    """The same with the patch."""


def later_cosines(proposer: Any, step: int) -> torch.Tensor:
    """Return what a draft step after the first one is rotated by."""
    _, metadata = proposer.attn_update_stack_num_spec_norm(step)
    return metadata.cos


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """vllm-ascend's buffer; the cosine and sine of a position are its number here."""
    from vllm_ascend.ops import rotary_embedding

    positions = torch.arange(64.0)[:, None].expand(-1, 2)
    buffer = torch.zeros(8, 1, 1, 2)
    for name in ("cos", "sin"):
        monkeypatch.setattr(rotary_embedding, f"_{name}_cache", positions)
        monkeypatch.setattr(rotary_embedding, f"_{name}_mla", buffer)
    return buffer


def test_each_draft_step_of_mla_has_the_rotary_positions_of_its_own(shared: torch.Tensor) -> None:
    from vllm_ascend.ops import rotary_embedding

    def prepared(proposer: Any) -> list[list[float]]:
        first = proposer.cosines(0)
        later = [later_cosines(proposer, step) for step in (1, 2, 3)]
        return [cosines[:, 0, 0, 0].tolist() for cosines in (first, *later)]

    assert prepared(Preparing()) == [[13.0, 23.0]] * 4
    ours = OurPreparing()
    assert prepared(ours) == [[10.0 + step, 20.0 + step] for step in range(4)]
    # The target goes on with vllm-ascend's.
    assert rotary_embedding._cos_mla is rotary_embedding._sin_mla is shared
    # A graph reads what it was captured with.
    ours.dummy_run()
    assert ours.captured[0].data_ptr() == shared.data_ptr()
    assert len({cosines.data_ptr() for cosines in ours.captured}) == 4
    for step in (1, 2, 3):
        replayed = later_cosines(ours, step)
        assert replayed.data_ptr() == ours.captured[step].data_ptr()
    assert rotary_embedding._cos_mla is shared


@pytest.mark.usefixtures("shared")
def test_draft_steps_of_sparse_attention_write_what_a_graph_reads() -> None:
    def rotated_by(proposer: Any) -> list[list[float]]:
        """What a replay reads after the metadata of its steps was built."""
        proposer.dummy_run()
        for step in (1, 2, 3):
            later_cosines(proposer, step)
        return [cosines[:, 0, 0, 0].tolist() for cosines in proposer.captured[1:]]

    right = [[10.0 + step, 20.0 + step] for step in (1, 2, 3)]
    stock, ours = SparsePreparing(), OurSparsePreparing()
    assert rotated_by(stock) != right
    assert rotated_by(ours) == right
    # What was captured stays in use with other positions.
    for table in ours.captured:
        table.zero_()
    assert later_cosines(ours, 2)[:, 0, 0, 0].tolist() == right[1]
    assert ours.captured[2][:, 0, 0, 0].tolist() == right[1]


def test_models_without_mla_have_no_rotary_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_ascend.ops import rotary_embedding

    for name in ("_cos_mla", "_sin_mla"):
        monkeypatch.setattr(rotary_embedding, name, None)
    ours = OurPreparing()
    no_tables = npu_mla_draft_positions.shared_tables()
    monkeypatch.setattr(ours, "rotation", lambda draft_index: no_tables)
    assert later_cosines(ours, 1) is None


class Buffer:
    """A buffer on host and device; this one is on the host only."""

    def __init__(self, *values: int) -> None:
        self.np = np.array(values, dtype=np.int32)

    def copy_to_gpu(self) -> None:
        return None


def test_requests_of_padding_share_the_tokens_that_are_left(
    our_class: Any,
    runner_classes: Any,
) -> None:
    """K=3: two requests of five tokens in a graph for three of four."""
    drafter = make(our_class)
    mode = SimpleNamespace()
    attributes = {
        "drafter": drafter,
        "uniform_decode_query_len": 4,
        "arange_np": np.arange(8),
        "compilation_config": SimpleNamespace(cudagraph_mode=mode),
    }

    stock, ours = (make(cls, **attributes) for cls in runner_classes)

    def pad(runner: Any) -> list[int]:
        drafter.query_start_loc = starts = Buffer(0, 5, 10, 0, 0)
        assert runner._pad_query_start_loc_for_fia(starts, 12, 3, 2, mode, 3) == 3
        return starts.np.tolist()

    assert pad(stock)[3] == 14
    assert pad(ours)[:4] == [0, 5, 10, 12]
    # The target's own padding is right as it is.
    target = Buffer(0, 4, 8, 0, 0)
    ours._pad_query_start_loc_for_fia(target, 12, 3, 2, mode, 3)
    assert target.np.tolist()[:4] == [0, 4, 8, 12]


@pytest.mark.parametrize(
    ("reals", "padded", "tokens", "expected"),
    [(1, 4, 16, [5, 8, 12, 16]), (3, 4, 16, [5, 10, 15, 16]), (2, 5, 20, [5, 10, 13, 16, 20])],
)
def test_shares_are_even(reals: int, padded: int, tokens: int, expected: list[int]) -> None:
    starts = np.zeros(8, dtype=np.int32)
    starts[: reals + 1] = 5 * np.arange(reals + 1)
    npu_draft_model_padding.share_tokens(starts, reals, padded, tokens)
    assert starts[1 : padded + 1].tolist() == expected


@pytest.mark.parametrize("by_name", [True, False])
def test_first_pass_gets_the_block_table_of_the_batch(
    stock_class: Any, our_class: Any, by_name: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm_ascend.spec_decode.llm_base_proposer import AscendSpecDecodeBaseProposer

    others = inspect.signature(stock_class.set_inputs_first_pass).parameters
    names = [name for name in others if name != "self"][:5]
    seen: list[int] = []

    def set_inputs_first_pass(self: Any, *given: Any) -> tuple[Any, ...]:
        seen.append(given[5].block_table_tensor.shape[0])
        return 2, None, given[5], None

    monkeypatch.setattr(
        AscendSpecDecodeBaseProposer, "set_inputs_first_pass", set_inputs_first_pass
    )
    metadata = SimpleNamespace(num_reqs=6, block_table_tensor=torch.zeros(8, 2))
    make(stock_class).set_inputs_first_pass(*names, metadata)
    positions = torch.tensor([8, 9])
    given = dict.fromkeys(names, None) | {"target_positions": positions, "cad": metadata}
    ours = make(
        our_class,
        uses_own_loop=True,
        parallel_drafting=False,
        needs_extra_input_slots=True,
        uses_mrope=False,
        positions=positions,
        draft_context=9,
        max_model_len=12,
    )
    if by_name:
        ours.set_inputs_first_pass(**given)
    else:
        ours.set_inputs_first_pass(*given.values())
    assert seen == [8, 6]
    # No position is looked up behind the draft's context.
    assert ours.positions.tolist() == [8, 8]
    # The runner's own metadata stays as it is.
    assert metadata.block_table_tensor.shape[0] == 8


def test_lengths_in_a_full_graph_count_the_sampled_token(stock_class: Any, our_class: Any) -> None:
    runner = SimpleNamespace(
        seq_lens=torch.tensor([7, 9, 0, 0]), optimistic_seq_lens_cpu=torch.tensor([7, 9, 0, 0])
    )
    stock, ours = (
        make(cls, runner=runner, net_num_new_slots_per_request=1)
        for cls in (stock_class, our_class)
    )
    assert stock._adjust_tensor(runner.seq_lens, 3).tolist() == [7, 9, 0]
    for lengths in (runner.seq_lens, runner.optimistic_seq_lens_cpu):
        assert ours._adjust_tensor(lengths, 3).tolist() == [8, 10, 0]
    assert ours._adjust_tensor(torch.tensor([7, 9]), 3).tolist() == [7, 9, 0]
    assert runner.seq_lens.tolist() == [7, 9, 0, 0]


class PastTheRewindError(Exception):
    """The stock bookkeeping got past the lines that rewind."""


class Batch:
    """The part of vllm-ascend's batch that sampling and rewinding look at."""

    sampling_metadata = None
    num_reqs = 3

    def __init__(self, generators: dict[int, torch.Generator]) -> None:
        self.generators = generators

    def update_async_output_token_ids(self) -> None:
        return None

    @property
    def req_ids(self) -> list[str]:
        raise PastTheRewindError


def test_generator_of_an_unfinished_prompt_is_not_rewound(
    runner_classes: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm_ascend.worker import model_runner_v1

    monkeypatch.setattr(model_runner_v1, "lmhead_tp_enable", lambda: False)
    offsets: list[int] = []

    class Generator(torch.Generator):
        def get_offset(self) -> int:
            return 100

        def set_offset(self, offset: int) -> None:
            offsets.append(offset)

    def keep_books(cls: Any, rewound: list[int]) -> None:
        generators = {index: Generator().manual_seed(index) for index in (0, 2)}
        batch = Batch(generators)
        runner = make(
            cls,
            input_batch=batch,
            # As vllm-ascend's runner sets them, both from the same numbers.
            discard_request_mask=SimpleNamespace(np=np.array([False, False, True, True])),
            num_discarded_requests=1,
            discard_request_indices=SimpleNamespace(np=np.array([2, 0, 0])),
            use_async_scheduling=False,
        )
        with pytest.raises(PastTheRewindError):
            runner._bookkeeping_sync(None, None, None, None, 0, None)
        assert sorted(batch.generators) == [0, 2]
        assert offsets == rewound
        offsets.clear()

    theirs, ours = runner_classes
    keep_books(theirs, rewound=[96])
    keep_books(ours, rewound=[])


def tokens_of_two_steps(*bases: Any) -> list[int]:
    """Return the tokens after a chunk of a prompt, of two steps that are not waited for."""
    from vllm.v1.utils import CpuGpuBuffer
    from vllm_ascend.spec_decode.llm_base_proposer import AscendSpecDecodeBaseProposer

    class Stock(AscendSpecDecodeBaseProposer):
        @classmethod
        def create(cls, engine: Any) -> Any:
            buffer = CpuGpuBuffer(4, dtype=torch.int32, device="npu")
            return make(cls, backup_next_token_ids=buffer)

        def _read(self, token: int) -> torch.Tensor:
            batch = SimpleNamespace(
                num_reqs=1, num_tokens_no_spec=np.array([9]), req_ids=["a"], vocab_size=64
            )
            nothing = torch.full((1, 1), -1, dtype=torch.int32, device="npu")
            none = torch.zeros(0, dtype=torch.int64, device="npu")
            requests = {"a": SimpleNamespace(get_token_id=lambda place: token)}
            return self.prepare_next_token_ids_padded(nothing, requests, batch, none, 0)[0]

    proposer = type("Proposer", (*bases, Stock), {}).create(None)
    found = [proposer._read(token) for token in (7, 11)]
    torch.npu.synchronize()
    return [int(tokens[0]) for tokens in found]


def test_a_step_does_not_read_the_next_ones_tokens_behind_prompt_pieces() -> None:
    with pytest.raises(RuntimeError, match="overwritten before the host had waited"):
        tokens_of_two_steps()
    assert tokens_of_two_steps(next_token_buffer.BufferOverride) == [7, 11]
