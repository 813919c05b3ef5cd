"""Inputs worked out on the host against what vLLM's kernels and proposer work out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vllm.platforms import current_platform
from vllm.utils import cpu_triton_utils as kernels
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.spec_decode import llm_base_proposer
from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

from tests.marks import requires_cpu_build
from vllm_ascend_spec.methods.loops.vllm.host_inputs import (
    HostInputsMixin,
    rotated,
    with_next_tokens,
)

pytestmark = requires_cpu_build
VOCAB = 12
REJECTED = -1
BACKUP = 100


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    current_platform.import_kernels()


class Stock:
    """Notes that vLLM's own preparation was asked for."""

    def prepare_next_token_ids_padded(self, *arguments: Any) -> str:
        return "stock"

    def prepare_inputs_padded(self, *arguments: Any) -> str:
        return "stock"


class Proposer(HostInputsMixin, Stock):
    def __init__(self, device: str = "cpu", own: bool = True) -> None:
        self.device, self.uses_own_loop = torch.device(device), own


def batch_of(num_reqs: int) -> tuple[Any, dict[str, Any]]:
    """Return a batch and its requests; token n of request i is BACKUP times n, and i."""
    ids = [f"r{index}" for index in range(num_reqs)]
    ends = [3 + index for index in range(num_reqs)]
    requests = {
        name: SimpleNamespace(get_token_id=lambda place, index=index: BACKUP * place + index)
        for index, name in enumerate(ids)
    }
    return SimpleNamespace(vocab_size=VOCAB, req_ids=ids, num_tokens_no_spec=ends), requests


tokens = st.integers(REJECTED, VOCAB + 1)
sampled = st.integers(1, 6).flatmap(
    lambda width: st.lists(
        st.tuples(st.lists(tokens, min_size=width, max_size=width), st.booleans()),
        min_size=1,
        max_size=9,
    )
)


@settings(max_examples=300, deadline=None)
@given(rows=sampled, dtype=st.sampled_from([torch.int32, torch.int64]))
def test_next_tokens_are_those_of_the_kernel(
    rows: list[tuple[list[int], bool]], dtype: torch.dtype
) -> None:
    num_reqs = len(rows)
    batch, requests = batch_of(num_reqs)
    token_ids = torch.tensor([row for row, _ in rows], dtype=dtype)
    # The runner's mask is as long as the largest batch.
    discarded = torch.tensor([discard for _, discard in rows] + [True, False])
    backup = torch.tensor([BACKUP * (2 + index) + index for index in range(num_reqs)])
    following, counts = torch.empty(num_reqs), torch.empty(num_reqs)
    following, counts = following.int(), counts.int()
    kernels._eagle_prepare_next_token_padded_kernel_impl(
        token_ids, discarded, backup, following, counts, VOCAB, token_ids.shape[1], num_reqs
    )
    ours = Proposer().prepare_next_token_ids_padded(token_ids, requests, batch, discarded)
    assert [found.dtype for found in ours] == [torch.int32, torch.int32]
    assert [found.tolist() for found in ours] == [following.tolist(), counts.tolist()]


drafted = st.lists(
    st.integers(0, 5).flatmap(
        lambda drafts: st.tuples(st.just(drafts), st.integers(1, drafts + 1), st.integers(1, 7))
    ),
    min_size=1,
    max_size=9,
)


def metadata_of(lengths: list[int]) -> CommonAttentionMetadata:
    starts = torch.tensor([0, *lengths]).cumsum(0).int()
    return CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=starts[1:] + 5,
        num_reqs=len(lengths),
        num_actual_tokens=int(starts[-1]) + 4,  # as if padded
        max_query_len=99,
        max_seq_len=200,
        block_table_tensor=torch.zeros(len(lengths), 2, dtype=torch.int32),
        slot_mapping=torch.arange(int(starts[-1]) + 4),
        seq_lens_cpu_upper_bound=starts[1:] + 6,
    )


@settings(max_examples=300, deadline=None)
@given(requests=drafted)
def test_rows_are_those_of_the_kernel(requests: list[tuple[int, int, int]]) -> None:
    # A request without drafts may read any part of its prompt.
    lengths = [drafts + 1 if drafts else chunk for drafts, _, chunk in requests]
    metadata = metadata_of(lengths)
    drafts = torch.tensor([drafts for drafts, _, _ in requests]).cumsum(0).int()
    counts = torch.tensor([count for _, count, _ in requests]).int()
    rows, rejected = torch.empty_like(counts), torch.empty_like(counts)
    kernels._eagle_prepare_inputs_padded_kernel_impl(
        drafts, counts, metadata.query_start_loc, rows, rejected, len(lengths)
    )
    verified = SimpleNamespace(cu_num_draft_tokens=drafts)
    found, *ours = Proposer().prepare_inputs_padded(metadata, verified, counts)
    assert [one.dtype for one in ours] == [torch.int32, torch.int32]
    assert [one.tolist() for one in ours] == [rows.tolist(), rejected.tolist()]
    assert found.num_actual_tokens == sum(lengths)
    assert found.max_query_len == max(lengths)
    assert found.slot_mapping.tolist() == list(range(sum(lengths)))
    for name in ("seq_lens", "block_table_tensor", "seq_lens_cpu_upper_bound", "query_start_loc"):
        assert getattr(found, name) is getattr(metadata, name)


@settings(max_examples=200, deadline=None)
@given(data=st.data(), lengths=st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_tokens_are_rotated_as_in_vllms_proposer(data: st.DataObject, lengths: list[int]) -> None:
    metadata = metadata_of(lengths)
    num_tokens = sum(lengths)
    ends = metadata.query_start_loc[1:].tolist()
    rows = torch.tensor(
        [data.draw(st.integers(end - n, end - 1)) for end, n in zip(ends, lengths, strict=True)],
        dtype=torch.int32,
    )
    token_ids = torch.arange(10, 10 + num_tokens, dtype=torch.int32)
    following = torch.arange(100, 100 + len(lengths), dtype=torch.int32)
    stock = SimpleNamespace(
        use_heterogeneous_vocab=False,
        needs_extra_input_slots=False,
        input_ids=torch.zeros(num_tokens, dtype=torch.int32),
        hidden_states=torch.zeros(num_tokens, 1),
        _set_positions=lambda *_: None,
    )
    SpecDecodeBaseProposer.set_inputs_first_pass(
        stock, token_ids, following, token_ids, torch.zeros(num_tokens, 1), rows, metadata, None
    )
    assert rotated(token_ids, following, rows).tolist() == stock.input_ids.tolist()


@pytest.fixture
def expand(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's proposer calls what a CPU has for its kernel, as vLLM's CPU runner arranges it."""

    def call(**arguments: Any) -> None:
        for name in ("batch_size", "num_blocks"):
            arguments.pop(name)
        kernels._copy_and_expand_eagle_inputs_kernel_impl(**arguments)

    monkeypatch.setattr(llm_base_proposer, "_copy_and_expand_eagle_inputs", call)


BLOCK, LONGEST = 4, 20


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    requests=st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 5), st.integers(0, LONGEST)),
        min_size=1,
        max_size=6,
    )
)
@pytest.mark.usefixtures("expand")
def test_next_tokens_are_put_behind_as_in_vllms_proposer(
    requests: list[tuple[int, int, int]],
) -> None:
    lengths = [length for length, _, _ in requests]
    metadata, num_reqs, num_tokens = metadata_of(lengths), len(requests), sum(lengths)
    # Blocks that tell requests and places apart; enough of them for every position.
    width = LONGEST // BLOCK + 1
    metadata.block_table_tensor = torch.arange(num_reqs * width).view(num_reqs, width).int()
    metadata.num_actual_tokens = num_tokens
    rejected = torch.tensor([min(bad, n - 1) for n, bad, _ in requests], dtype=torch.int32)
    token_ids = torch.arange(10, 10 + num_tokens, dtype=torch.int32)
    # A request that comes to the end of its context, too.
    positions = torch.cat([torch.arange(first, first + n) for n, _, first in requests])
    positions.clamp_(max=LONGEST - 1)
    following = torch.arange(100, 100 + num_reqs, dtype=torch.int32)
    room = num_tokens + num_reqs
    stock = SimpleNamespace(
        use_heterogeneous_vocab=False,
        needs_extra_input_slots=True,
        net_num_new_slots_per_request=1,
        extra_slots_per_request=1,
        pass_hidden_states_to_model=False,
        parallel_drafting_token_id=0,
        device=torch.device("cpu"),
        block_size=BLOCK,
        max_model_len=LONGEST,
        arange=torch.arange(room + 1, dtype=torch.int32),
        input_ids=torch.zeros(room, dtype=torch.int32),
        positions=torch.zeros(room, dtype=torch.int64),
        is_rejected_token_mask=torch.zeros(room, dtype=torch.bool),
        is_masked_token_mask=torch.zeros(room, dtype=torch.bool),
    )
    num_rows, rows, theirs = SpecDecodeBaseProposer.set_inputs_first_pass(
        stock, token_ids, following, positions, None, None, metadata, rejected
    )
    inputs, ours = with_next_tokens(
        token_ids, positions, following, rejected, metadata, BLOCK, LONGEST
    )
    assert num_rows == len(inputs.token_ids)
    assert inputs.token_ids.tolist() == stock.input_ids.tolist()
    assert inputs.positions.tolist() == stock.positions.tolist()
    assert inputs.rows.tolist() == rows.tolist()
    for name, wanted in vars(theirs).items():
        found = getattr(ours, name)
        if isinstance(wanted, torch.Tensor):
            assert found.dtype == wanted.dtype, name
            assert found.tolist() == wanted.tolist(), name
        else:
            assert found == wanted, name


@pytest.mark.parametrize(("device", "own"), [("cpu", False), ("meta", True)])
def test_elsewhere_it_is_vllms_to_do(device: str, own: bool) -> None:
    proposer = Proposer(device, own)
    assert proposer.prepare_next_token_ids_padded(None, {}, None, None) == "stock"
    assert proposer.prepare_inputs_padded(None, None, None) == "stock"
