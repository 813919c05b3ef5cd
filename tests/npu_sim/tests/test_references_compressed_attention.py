"""DeepSeek V4's ops against transformers' formulations, and loops over single tokens."""

import pytest
import torch
from npu_sim.references import load_all
from npu_sim.references.checks import OpError

modeling = pytest.importorskip(
    "transformers.models.deepseek_v4.modeling_deepseek_v4", reason="transformers has no DeepSeek V4"
)
from transformers.models.deepseek_v4 import DeepseekV4Config  # noqa: E402

OPS = load_all()
COMPRESSOR, METADATA = "_C_ascend::compressor", "_C_ascend::compressor_metadata"
INDEXER = "_C_ascend::npu_quant_lightning_indexer_v2"
ATTENTION = "_C_ascend::npu_sparse_attn_sharedkv"
HIDDEN, SIZE, ROPE, STREAMS, BLOCK = 32, 16, 8, 4, 16
SPLIT = torch.zeros(1024, dtype=torch.int32)
# Two texts that come in pieces, and how long each is after a step.
STEPS = ((7, 0), (8, 3), (11, 131), (150, 140), (151, 256), (300, 260))


def numbers(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def ints(values):
    return torch.tensor(values, dtype=torch.int32)


def config():
    """Give a small DeepSeek V4 whose parts below are the reference."""
    ropes = {
        name: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": ROPE / SIZE}
        for name in ("main", "compress")
    }
    return DeepseekV4Config(
        vocab_size=64,
        hidden_size=HIDDEN,
        head_dim=SIZE,
        num_attention_heads=4,
        num_hidden_layers=3,
        n_routed_experts=8,
        num_experts_per_tok=3,
        layer_types=[
            "sliding_attention",
            "compressed_sparse_attention",
            "heavily_compressed_attention",
        ],
        partial_rotary_factor=ROPE / SIZE,
        rope_parameters=ropes,
        index_head_dim=SIZE,
        index_n_heads=2,
        q_lora_rank=16,
        o_groups=2,
        o_lora_rank=8,
        max_position_embeddings=512,
    )


def filled(module):
    """Give the module with random parameters, the same each time."""
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    return module.eval()


def angles(count):
    """Give cosines and sines of each position, each twice, [count, ROPE]."""
    frequencies = 1e4 ** -(torch.arange(0, ROPE, 2) / ROPE)
    turned = (torch.arange(count)[:, None] * frequencies).repeat_interleave(2, -1)
    return turned.cos(), turned.sin()


class Compressing:
    """A module of transformers and the op with its weights, over one paged state."""

    def __init__(self, ratio):
        self.ratio, self.coff = ratio, 2 if ratio == 4 else 1
        kind = modeling.DeepseekV4CSACompressor if ratio == 4 else modeling.DeepseekV4HCACompressor
        self.module = filled(kind(config()))
        # Blocks of 8 positions, in no order; block 0 is nobody's.
        order = torch.randperm(80, generator=torch.Generator().manual_seed(3)) + 1
        self.table = order.view(2, 40).to(torch.int32)
        self.state = torch.full((81, 8, 2 * self.coff * SIZE), float("nan"))
        self.texts = [numbers(300, HIDDEN), numbers(301, HIDDEN)[:300]]
        self.cos, self.sin = angles(512)

    def step(self, starts, ends):
        """Give the keys that the op makes of the tokens from starts to ends, and where they go."""
        pieces = [text[a:b] for text, a, b in zip(self.texts, starts, ends, strict=True)]
        x = torch.cat(pieces)
        cu_seqlens = ints([0, len(pieces[0]), len(x)])
        rows = min(len(x), len(x) // self.ratio + 2)
        given = (cu_seqlens, ints(starts), self.table, BLOCK)
        cos, sin, slots = OPS[METADATA](self.cos, self.sin, *given, 2, self.ratio, rows, 2)
        module = self.module
        keys = OPS[COMPRESSOR](
            x,
            module.kv_proj.weight,
            module.gate_proj.weight,
            self.state,
            module.position_bias,
            module.kv_norm.weight,
            sin.view(rows, -1),
            cos.view(rows, -1),
            state_block_table=self.table,
            cu_seqlens=cu_seqlens,
            seqused=None,
            start_pos=ints(starts),
            rope_head_dim=ROPE,
            cmp_ratio=self.ratio,
            coff=self.coff,
            norm_eps=config().rms_norm_eps,
            rotary_mode=2,
            cache_mode=1,
        )
        return keys, slots

    def wanted(self, text):
        """Give all keys of a whole text, as transformers makes them, [keys, SIZE]."""
        positions = torch.arange(300)[None]
        queries = torch.zeros(1, 300, 16)
        return self.module(self.texts[text][None], queries, positions, None, 1)[0][0, 0]


@torch.no_grad()
@pytest.mark.parametrize("ratio", [4, 128])
def test_keys_of_texts_in_pieces_are_those_of_whole_texts(ratio):
    both, starts = Compressing(ratio), (0, 0)
    wanted = [both.wanted(text) for text in (0, 1)]
    for ends in STEPS:
        keys, slots = both.step(starts, ends)
        expected, places = [], []
        for text, (start, end) in enumerate(zip(starts, ends, strict=True)):
            for key in range(start // ratio, end // ratio):
                expected.append(wanted[text][key])
                places.append([int(both.table[text, key // BLOCK]), key % BLOCK])
        count = len(expected)
        if count:
            torch.testing.assert_close(keys[:count], torch.stack(expected), rtol=1e-4, atol=1e-5)
            assert slots[:count].tolist() == places
        assert not keys[count:].any()
        assert (slots[count:, 0] == -1).all()
        starts = ends


@torch.no_grad()
def test_tokens_that_were_taken_back_leave_no_trace():
    """A rejected draft's state is written over by the tokens that are right."""
    right, wrong = Compressing(4), Compressing(4)
    text = wrong.texts[0].clone()
    wrong.texts[0] = torch.cat((text[:9], numbers(291, HIDDEN)))
    for both in (right, wrong):
        both.step((0, 0), (7, 0))
        both.step((7, 0), (12, 0))
    wrong.texts[0] = text
    for both in (right, wrong):
        both.keys, _ = both.step((9, 0), (16, 0))
    torch.testing.assert_close(wrong.keys, right.keys)


def test_state_of_block_0_is_not_written():
    both = Compressing(4)
    both.table[:, :2] = 0
    both.step((0, 0), (16, 0))
    assert both.state.isnan().all()


@torch.no_grad()
def test_streams_are_mixed_as_transformers_does():
    module = filled(modeling.DeepseekV4HyperConnection(config()))
    streams, output = numbers(5, STREAMS, HIDDEN), numbers(5, HIDDEN)
    told = config()
    mixed, post, comb = OPS["_C_ascend::npu_hc_pre_v2"](
        streams,
        module.fn.data,
        module.scale.data,
        module.base.data,
        STREAMS,
        told.hc_sinkhorn_iters,
        told.rms_norm_eps,
        told.hc_eps,
    )
    want_post, want_comb, want_mixed = module(streams[None])
    torch.testing.assert_close(mixed, want_mixed[0])
    torch.testing.assert_close(post, want_post[0])
    torch.testing.assert_close(comb, want_comb[0])
    new = OPS["_C_ascend::npu_hc_post"](output[None], streams[None], post[None], comb[None])[0]
    for token in range(5):
        for j in range(STREAMS):
            want = post[token, j] * output[token]
            for i in range(STREAMS):
                want = want + comb[token, i, j] * streams[token, i]
            torch.testing.assert_close(new[token, j], want)


@torch.no_grad()
@pytest.mark.parametrize("by_token", [False, True])
def test_experts_are_chosen_as_transformers_does(by_token):
    kind = modeling.DeepseekV4HashRouter if by_token else modeling.DeepseekV4TopKRouter
    router, x, ids = filled(kind(config())), numbers(6, HIDDEN), torch.arange(6) * 9
    table = bias = None
    if by_token:
        table = torch.stack([torch.randperm(8)[:3] for _ in range(64)])
        router.tid2eid = table
        logits, weights, experts = router(x, ids)
    else:
        bias = numbers(8)
        router.e_score_correction_bias = bias
        logits, weights, experts = router(x)
    found = OPS["_C_ascend::moe_gating_top_k_hash"](
        logits,
        3,
        bias=bias,
        input_ids=ids if by_token else None,
        tid2eid=table,
        routed_scaling_factor=router.routed_scaling_factor,
        norm_type=2,
    )
    order, wanted = found[1].sort(-1), experts.sort(-1)
    assert torch.equal(order.values.long(), wanted.values)
    chosen = found[0].gather(-1, order.indices), weights.gather(-1, wanted.indices)
    torch.testing.assert_close(*chosen)


ROWS, LENGTHS = (5, 1, 4), (5, 38, 70)
TABLE = [[3, 9, 9, 9, 9], [0, 8, 6, 9, 9], [7, 1, 4, 2, 5]]


def rows():
    """Give each row's number with its sequence and the position of its token."""
    row = 0
    for sequence, (count, length) in enumerate(zip(ROWS, LENGTHS, strict=True)):
        for i in range(count):
            yield row, sequence, length - count + i
            row += 1


def cached(cache, sequence, place):
    return cache[TABLE[sequence][place // BLOCK], place % BLOCK, 0]


def starts():
    return ints([0, *torch.tensor(ROWS).cumsum(0).tolist()])


@pytest.mark.parametrize("selected", [None, 2])
@pytest.mark.parametrize("ratio", [1, 4])
def test_attention_sees_its_window_and_compressed_keys(ratio, selected):
    total, heads, window = sum(ROWS), 3, 9
    q, own = numbers(total, heads, SIZE), numbers(10, BLOCK, 1, SIZE)
    own[4] = float("nan")  # a block that the window has left behind
    compressed, sinks = numbers(11, BLOCK, 1, SIZE)[:10], numbers(heads)
    compressed_too = {} if ratio == 1 else {"cmp_kv": compressed, "cmp_block_table": ints(TABLE)}
    chosen = {}
    for row, _, position in rows():
        count = (position + 1) // ratio
        chosen[row] = list(range(count))[::-1][: selected or count]
    if selected and ratio > 1:
        padded = [(chosen[row] + [-1] * selected)[:selected] for row in range(total)]
        compressed_too["cmp_sparse_indices"] = ints(padded)[:, None]
    found, _ = OPS[ATTENTION](
        q,
        ori_kv=own,
        ori_block_table=ints(TABLE),
        cu_seqlens_q=starts(),
        seqused_kv=ints(LENGTHS),
        sinks=sinks,
        metadata=SPLIT,
        softmax_scale=0.3,
        cmp_ratio=ratio,
        ori_win_left=window - 1,
        layout_q="TND",
        **compressed_too,
    )
    for row, sequence, position in rows():
        seen = [
            cached(own, sequence, p) for p in range(max(0, position - window + 1), position + 1)
        ]
        if ratio > 1:
            seen += [cached(compressed, sequence, key) for key in chosen[row]]
        keys = torch.stack(seen)
        for head in range(heads):
            logits = torch.cat((keys @ q[row, head] * 0.3, sinks[head, None]))
            want = logits.softmax(0)[:-1] @ keys
            torch.testing.assert_close(found[row, head], want, rtol=1e-4, atol=1e-5)


def test_the_indexer_selects_the_best_keys_that_a_row_sees():
    total, heads, topk = sum(ROWS), 2, 6
    generator = torch.Generator().manual_seed(0)
    query = torch.randint(-128, 128, (total, heads, SIZE), generator=generator).to(torch.int8)
    key = torch.randint(-128, 128, (10, BLOCK, 1, SIZE), generator=generator).to(torch.int8)
    weights, query_scale = (
        numbers(total, heads).half(),
        numbers(total, heads + 1)[:, :2].abs().half(),
    )
    key_scale = numbers(10, BLOCK, 1).abs().half()
    lengths = ints(LENGTHS)
    found, _ = OPS[INDEXER](
        query,
        key,
        weights,
        query_scale,
        key_scale,
        topk,
        2,
        cu_seqlens_q=starts(),
        seqused_k=lengths // 4,
        cmp_residual_k=lengths % 4,
        block_table=ints(TABLE),
        metadata=SPLIT,
    )
    for row, sequence, position in rows():
        scores = []
        for place in range((position + 1) // 4):
            score = 0.0
            for head in range(heads):
                product = cached(key, sequence, place).float() @ query[row, head].float()
                scale = (
                    float(cached(key_scale[..., None], sequence, place)) * query_scale[row, head]
                )
                score += float(weights[row, head] * (product * scale).relu())
            scores.append(score)
        best = sorted(range(len(scores)), key=lambda place: -scores[place])[:topk]
        assert found[row, 0].tolist() == best + [-1] * (topk - len(best))


def test_rotation_of_a_part_and_back():
    x, (cos, sin) = numbers(4, 1, 2, SIZE), angles(4)
    op, was = OPS["_C_ascend::inplace_partial_rotary_mul"], x.clone()
    cos, sin, part = cos.view(4, 1, 1, ROPE), sin.view(4, 1, 1, ROPE), [SIZE - ROPE, SIZE]
    op(x, cos, sin, "interleave", part)
    pairs = torch.view_as_complex(was[..., SIZE - ROPE :].reshape(4, 1, 2, -1, 2))
    turned = pairs * torch.complex(cos[..., ::2], sin[..., ::2])
    torch.testing.assert_close(x[..., SIZE - ROPE :], torch.view_as_real(turned).flatten(-2))
    assert torch.equal(x[..., : SIZE - ROPE], was[..., : SIZE - ROPE])
    op(x, cos, sin, "interleave", part, True)
    torch.testing.assert_close(x, was)


def test_what_the_references_do_not_honour_is_refused():
    zeros = torch.zeros(1, 1, SIZE)
    with pytest.raises(OpError, match="quant_mode is 1"):
        OPS[INDEXER](zeros, zeros, zeros, zeros, zeros, 1, 1)
    with pytest.raises(OpError, match="hc_mult is 2"):
        OPS["_C_ascend::npu_hc_pre_v2"](numbers(1, 2, 8), *[numbers(3)] * 3, 2, 1, 1e-6, 1e-6)
    with pytest.raises(OpError, match="layout_q is 'BSND'"):
        OPS[ATTENTION](numbers(1, 1, SIZE))


def test_keys_are_scattered_whether_they_have_the_dimension_of_one_head_or_not():
    slots, keys = ints([[1, 2], [-1, BLOCK - 1]]), numbers(2, SIZE)
    flat, whole = torch.zeros(3, BLOCK, 1, SIZE), torch.zeros(3, BLOCK, 1, SIZE)
    OPS["_C_ascend::npu_scatter_nd_update_sk"](flat, slots, keys)
    OPS["_C_ascend::npu_scatter_nd_update_sk"](whole, slots, keys[:, None])
    assert torch.equal(flat, whole)
    assert torch.equal(flat[1, 2, 0], keys[0])
