"""Gated DeltaNet's ops against transformers' formulations, and PyTorch's convolution."""

from itertools import pairwise

import pytest
import torch
from npu_sim.references import load_all
from npu_sim.references.checks import OpError
from torch.nn import functional

modeling = pytest.importorskip(
    "transformers.models.qwen3_next.modeling_qwen3_next", reason="transformers is not installed"
)
OPS = load_all()
RECURRENT = OPS["fla_npu::recurrent_gated_delta_rule"]
CHUNKS = OPS["fla_npu::chunk_gated_delta_rule_fwd"]
READ = OPS["fla_npu::causal_conv1d_fn"]
UPDATE = OPS["fla_npu::causal_conv1d_update"]
KEYS, VALUES, SIZE = 2, 4, 128
DIM, WIDTH = 32, 4


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def rows(tokens, seed=0):
    """Give queries and keys, normed, values, gates and betas of some tokens."""
    q, k = (
        functional.normalize(numbers(tokens, KEYS, SIZE, seed=seed + i), dim=-1) for i in (1, 2)
    )
    g = -functional.softplus(numbers(tokens, VALUES, seed=seed + 3))
    return q, k, numbers(tokens, VALUES, SIZE, seed=seed), g, numbers(tokens, VALUES).sigmoid()


def by_transformers(rule, q, k, v, g, beta, state):
    """Give outputs and the state after some tokens; states are by value and key here."""
    heads = [x.repeat_interleave(VALUES // KEYS, 1) for x in (q, k)]
    given = [x[None] for x in (*heads, v, g, beta)]
    out, last = rule(*given, initial_state=state.mT[None].clone(), output_final_state=True)
    return out[0], last[0].mT


def table(blocks=9, dtype=torch.float32):
    """Give a cache of states with gaps between its blocks."""
    return numbers(blocks, 2, VALUES, SIZE, SIZE)[:, 0].to(dtype)


def recurrent(state, given, lengths, indices, **more):
    q, k, v, g, beta = given
    return RECURRENT(
        q,
        k,
        v,
        state,
        g=g,
        beta=beta,
        scale=SIZE**-0.5,
        actual_seq_lengths=ints(0, *lengths),
        ssm_state_indices=ints(*indices),
        **more,
    )


@pytest.mark.parametrize("accepted", [(1, 1), (2, 3), (1, 2)])
def test_tokens_are_read_one_after_the_other(accepted):
    """Each request begins at the state of its last accepted token, and keeps one after each."""
    blocks, lengths = [[5, 1], [2, 8, 3]], [2, 3]
    state, given = table(), rows(5)
    before = state.clone()
    flat = [block for row in blocks for block in row]
    out = recurrent(state, given, lengths, flat, num_accepted_tokens=ints(*accepted))
    first = 0
    for row, length, count in zip(blocks, lengths, accepted, strict=True):
        now = before[row[count - 1]]
        for at, block in enumerate(row):
            some = slice(first, first + at + 1)
            want, last = by_transformers(
                modeling.torch_recurrent_gated_delta_rule, *(x[some] for x in given), now
            )
            torch.testing.assert_close(state[block], last, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(out[first : first + length], want, atol=1e-5, rtol=1e-4)
        first += length
    untouched = [block for block in range(len(state)) if block not in flat]
    assert torch.equal(state[untouched], before[untouched])


def test_requests_without_tokens_are_skipped():
    state = table()
    expected = state.clone()
    given = rows(3)
    out = recurrent(state, given, [1, 0, 2], [4, 6, 7])
    alone = recurrent(expected, tuple(x[1:] for x in given), [2], [6, 7])
    assert torch.equal(out[1:], alone)
    assert torch.equal(state[6:8], expected[6:8])


def test_a_bfloat16_state_is_rounded_where_it_is_kept():
    state, given = table(dtype=torch.bfloat16), rows(2)
    _, last = by_transformers(modeling.torch_recurrent_gated_delta_rule, *given, state[1].float())
    recurrent(state, given, [2], [1, 2])
    torch.testing.assert_close(state[2].float(), last, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"num_accepted_tokens": ints(3, 1)}, "num_accepted_tokens is 3 where a request has 2"),
        ({"num_accepted_tokens": ints(0, 1)}, "num_accepted_tokens is 0"),
        ({"num_accepted_tokens": ints(1)}, r"valid: \(2\)"),
        ({"indices": (1, 2, 3, 4)}, r"ssm_state_indices has shape \(4,\); valid: \(3\)"),
        ({"lengths": (1, 2, 0), "num_accepted_tokens": ints(1, 1)}, r"valid: \(3\)"),
        ({"gk": numbers(3, VALUES, SIZE)}, "no reference for gk"),
    ],
)
def test_what_the_recurrence_refuses(changed, reason):
    arguments = {"lengths": (2, 1), "indices": (1, 2, 3), **changed}
    with pytest.raises(OpError, match=reason):
        recurrent(table(), rows(3), **arguments)


def test_no_more_than_eight_tokens_of_a_request():
    with pytest.raises(OpError, match="a request has 9 tokens; valid: up to 8"):
        recurrent(table(10), rows(9), [9], range(9))


def head_first(q, k, v, g, beta):
    q, k, v = (x.transpose(0, 1)[None].contiguous() for x in (q, k, v))
    return q, k, v, g[None].contiguous(), beta[None].contiguous()


@pytest.mark.parametrize("lengths", [[70], [1, 130, 64]])
def test_prompts_are_read_as_by_chunks(lengths):
    given, state = rows(sum(lengths)), table(len(lengths))
    ends = torch.tensor([0, *lengths]).cumsum(0).tolist()
    indices = tuple(x for i, n in enumerate(lengths) for c in range(-(-n // 64)) for x in (i, c))
    out, final, *nothing = CHUNKS(
        *head_first(*given),
        initial_state=state.mT.contiguous(),
        output_final_state=True,
        cu_seqlens=tuple(ends),
        chunk_indices=indices,
        scale=SIZE**-0.5,
        layout="BNSD",
        use_exp2=False,
        state_v_first=False,
    )
    assert nothing == [None] * 8
    for request, (first, last) in enumerate(pairwise(ends)):
        some = slice(first, last)
        want, end = by_transformers(
            modeling.torch_chunk_gated_delta_rule, *(x[some] for x in given), state[request]
        )
        torch.testing.assert_close(out[0, some], want, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(final[request].mT, end, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"cu_seqlens": (0, 2, 2, 5)}, "cu_seqlens is"),
        ({"cu_seqlens": (0, 4)}, "cu_seqlens is"),
        ({"chunk_indices": (0, 0)}, "chunk_indices is"),
        ({"layout": "TND"}, "layout is 'TND'"),
        ({"use_qk_l2norm_in_kernel": True}, "no reference for use_qk_l2norm_in_kernel"),
        ({"initial_state": numbers(1, VALUES, SIZE, SIZE)}, "initial_state has shape"),
    ],
)
def test_what_reading_prompts_refuses(changed, reason):
    arguments = {"cu_seqlens": (0, 2, 5), **changed}
    with pytest.raises(OpError, match=reason):
        CHUNKS(*head_first(*rows(5)), **arguments)


def convolved(x, before, weight, bias):
    """Convolve with PyTorch; `before` are the inputs before x."""
    inputs = torch.cat((before, x)).T[None]
    found = functional.conv1d(inputs, weight.T[:, None], bias, groups=DIM)
    return functional.silu(found[0].T)


def convolution(tokens, blocks=6, state_len=WIDTH - 1 + 3):
    """Give x, weight, bias and a cache with gaps between its blocks."""
    cache = numbers(blocks, 2 * state_len, DIM)[:, :state_len]
    return numbers(tokens, DIM), numbers(WIDTH, DIM), numbers(DIM), cache


@pytest.mark.parametrize("with_bias", [True, False])
def test_prompts_are_convolved(with_bias):
    x, weight, bias, cache = convolution(8)
    bias = bias if with_bias else None
    before = cache.clone()
    out = READ(
        x,
        weight,
        bias,
        conv_states=cache,
        query_start_loc=ints(0, 1, 7, 7, 8),
        cache_indices=ints(4, 2, 1, 0),
        has_initial_state=torch.tensor([True, False, True, True]),
        activation="silu",
    )
    nothing = torch.zeros(WIDTH - 1, DIM)
    torch.testing.assert_close(out[:1], convolved(x[:1], before[4, :3], weight, bias))
    torch.testing.assert_close(out[1:7], convolved(x[1:7], nothing, weight, bias))
    assert torch.equal(cache[4, :3], torch.cat((before[4, 1:3], x[:1])))
    assert torch.equal(cache[2, :3], x[4:7])
    # No tokens, the null block, and what is behind the inputs that are kept.
    assert not out[7:].any()
    assert torch.equal(cache[[0, 1, 3, 5]], before[[0, 1, 3, 5]])
    assert torch.equal(cache[:, 3:], before[:, 3:])


@pytest.mark.parametrize("accepted", [(1, 1, 1), (3, 4, 2)])
def test_drafts_are_convolved_from_the_last_accepted_input(accepted):
    x, weight, bias, cache = convolution(8)
    before, out = cache.clone(), torch.empty_like(x)
    arguments = {
        "bias": bias,
        "activation": "silu",
        "conv_state_indices": ints(4, 2, 0),
        "num_accepted_tokens": ints(*accepted),
        "query_start_loc": ints(0, 4, 6, 8),
        "max_query_len": 4,
        "out": out,
    }
    assert UPDATE(x, cache, weight, **arguments) is out
    for block, first, last, count in ((4, 0, 4, accepted[0]), (2, 4, 6, accepted[1])):
        seen = before[block, count - 1 : count + 2]
        torch.testing.assert_close(out[first:last], convolved(x[first:last], seen, weight, bias))
        kept = torch.cat((seen[1:], x[first:last]))
        assert torch.equal(cache[block, : len(kept)], kept)
        assert torch.equal(cache[block, len(kept) :], before[block, len(kept) :])
    assert torch.equal(cache[[0, 1, 3, 5]], before[[0, 1, 3, 5]])


def test_one_token_without_drafts():
    x, weight, bias, cache = convolution(2)
    before = cache.clone()
    out = UPDATE(
        x,
        cache,
        weight,
        bias,
        "silu",
        conv_state_indices=ints(1, 3),
        query_start_loc=ints(0, 1, 2),
        max_query_len=1,
    )
    for row, block in enumerate((1, 3)):
        want = convolved(x[row : row + 1], before[block, :3], weight, bias)
        torch.testing.assert_close(out[row : row + 1], want)
        assert torch.equal(cache[block, :3], torch.cat((before[block, 1:3], x[row : row + 1])))
    assert torch.equal(cache[:, 3:], before[:, 3:])


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"num_accepted_tokens": ints(0, 1)}, "num_accepted_tokens is 0; valid: 1 to 4"),
        ({"num_accepted_tokens": ints(5, 1)}, "num_accepted_tokens is 5"),
        ({"query_start_loc": ints(0, 2)}, r"conv_state_indices has shape"),
        ({"query_start_loc": ints(0, 5, 6)}, "a request has 5 tokens; valid: 4"),
        ({"query_start_loc": ints(0, 4, 9)}, "query_start_loc is"),
        ({"activation": "gelu"}, "activation is 'gelu'"),
        ({"conv_state_indices_cpu": [1, 2]}, "no reference for conv_state_indices_cpu"),
    ],
)
def test_what_updates_refuse(changed, reason):
    x, weight, bias, cache = convolution(6)
    arguments = {
        "conv_state_indices": ints(1, 2),
        "num_accepted_tokens": ints(1, 1),
        "query_start_loc": ints(0, 4, 6),
        "max_query_len": 4,
        **changed,
    }
    with pytest.raises(OpError, match=reason):
        UPDATE(x, cache, weight, bias, **arguments)


def test_the_package_has_them_as_device_ops():
    if not hasattr(torch, "npu"):
        pytest.skip("torch_npu is not loaded: run with the simulator")
    from fla_npu.ops.ascendc import causal_conv1d_fn
    from npu_sim import counters

    x, weight, bias, cache = (tensor.npu() for tensor in convolution(2))
    with counters.scope("convolution"):
        out = causal_conv1d_fn(
            x,
            weight,
            bias,
            conv_states=cache,
            query_start_loc=ints(0, 2).npu(),
            cache_indices=ints(1).npu(),
            has_initial_state=torch.tensor([False]).npu(),
        )
    assert out.device.type == "npu"
    assert torch.equal(cache[1, 1:3].cpu(), x.cpu())
    assert counters.scopes()["convolution"].ops["fla_npu::causal_conv1d_fn"].launched == 1
