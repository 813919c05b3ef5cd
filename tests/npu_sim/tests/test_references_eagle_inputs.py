"""Expanded draft inputs, built request by request from lists."""

import pytest
import torch
from npu_sim.references import load_all
from npu_sim.references.checks import OpError
from npu_sim.references.registry import META

OPS = load_all()
NAME = "_C_ascend::npu_copy_and_expand_eagle_inputs"
PAD, PARALLEL = 0, 777


def ints(values):
    return torch.tensor(values, dtype=torch.int32)


def listed(requests, slots, shift):
    """Give the six outputs as lists.

    Args:
        requests: Per request its token ids, its first position, how many tokens were rejected and
            the sampled token.
        slots: Padding slots per request.
        shift: Whether the first accepted token is left out.
    """
    ids, positions, rejected, masked, new, mapping = [], [], [], [], [], []
    for tokens, first_position, num_rejected, sampled in requests:
        accepted = tokens[: len(tokens) - num_rejected][int(shift) :]
        start = len(ids)
        new += [start + len(accepted) + j for j in range(slots)]
        mapping += [start + j if shift else 0 for j in range(len(tokens))]
        kept = [*accepted, sampled, *[PARALLEL] * (slots - 1)]
        ids += kept + [PAD] * num_rejected
        positions += [first_position + j for j in range(len(kept))] + [0] * num_rejected
        rejected += [0] * len(kept) + [1] * num_rejected
        masked += [0] * (len(accepted) + 1) + [1] * (slots - 1) + [0] * num_rejected
    return ids, positions, rejected, masked, new, mapping


def call(requests, slots, shift, op=None, **changed):
    starts, ends, tokens, positions = [0], [], [], []
    for ids, first, num_rejected, _ in requests:
        tokens += ids
        positions += [first + j for j in range(len(ids))]
        starts.append(len(tokens))
        ends.append(len(tokens) - 1 - num_rejected)
    arguments = {
        "target_token_ids": ints(tokens),
        "target_positions": ints(positions),
        "next_token_ids": ints([sampled for *_, sampled in requests]),
        "query_start_loc": ints(starts),
        "query_end_loc": ints(ends),
        "padding_token_id": PAD,
        "parallel_drafting_token_id": PARALLEL,
        "num_padding_slots_per_request": slots,
        "shift_input_ids": shift,
        "total_draft_tokens": len(tokens) + (slots - int(shift)) * len(requests),
    }
    return (op or OPS[NAME])(**{**arguments, **changed})


BATCHES = {
    "one": [([11, 12, 13], 5, 0, 90)],
    "verification": [
        ([1, 2, 3, 4], 7, 2, 91),
        ([5, 6, 7, 8], 0, 0, 92),
        ([9, 10, 11, 12], 3, 3, 93),
    ],
    "prefill and decode": [(list(range(20, 37)), 0, 0, 94), ([40], 88, 0, 95)],
    "nobody": [],
}


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("batch", list(BATCHES))
def test_outputs(batch, slots, shift):
    got = call(BATCHES[batch], slots, shift)
    want = listed(BATCHES[batch], slots, shift)
    for tensor, values in zip(got, want, strict=True):
        assert tensor.tolist() == values
    dtypes = [torch.int32, torch.int32, torch.int8, torch.int8, torch.int32, torch.int32]
    assert [tensor.dtype for tensor in got] == dtypes


def test_what_no_request_writes_is_zero():
    ids, *_ = call(BATCHES["one"], 1, False, total_draft_tokens=6)
    assert ids.tolist() == [11, 12, 13, 90, 0, 0]


def test_an_empty_request_gets_its_slots_only():
    requests = [([11, 12], 5, 0, 90), ([], 0, 0, 91), ([13], 2, 0, 92)]
    ids, positions, *_ = call(requests, 1, False)
    assert ids.tolist() == [11, 12, 90, 91, 13, 92]
    assert positions.tolist() == [5, 6, 7, 2, 2, 3]  # reads on: it has no position of its own


@pytest.mark.parametrize("batch", ["one", "verification", "nobody"])
def test_shapes_for_tracing(batch):
    real, traced = call(BATCHES[batch], 2, True), call(BATCHES[batch], 2, True, op=META[NAME])
    assert [(t.shape, t.dtype) for t in real] == [(t.shape, t.dtype) for t in traced]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"target_positions": torch.tensor([5, 6, 7])}, "target_positions is torch.int64"),
        ({"target_positions": ints([5, 6])}, "target_positions has shape"),
        ({"next_token_ids": ints([1, 2])}, "next_token_ids has shape"),
        ({"query_start_loc": ints([0, 4])}, "does not divide 3 inputs"),
        ({"query_end_loc": ints([3])}, "query_end_loc.0. is 3"),
        ({"query_end_loc": ints([-2])}, "query_end_loc.0. is -2"),
        ({"num_padding_slots_per_request": 0}, "is 0; valid: 1 to 64"),
        ({"total_draft_tokens": 3}, "beyond total_draft_tokens 3"),
    ],
)
def test_refused(changed, reason):
    with pytest.raises(OpError, match=rf"^{NAME}: .*{reason}"):
        call(BATCHES["one"], 1, False, **changed)


def test_a_shifted_request_must_have_an_accepted_token():
    with pytest.raises(OpError, match="query_end_loc"):
        call([([1, 2], 0, 2, 9)], 1, True)


def test_a_prompt_beyond_the_kernels_buffers_is_refused():
    with pytest.raises(OpError, match="the kernel's buffers hold 4096"):
        call([(list(range(5000)), 0, 0, 1)], 1, False)
