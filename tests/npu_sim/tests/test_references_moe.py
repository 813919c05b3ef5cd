"""Mixtures of experts against loops over tokens and experts."""

import math

import pytest
import torch
from npu_sim.references import load_all
from npu_sim.references.checks import OpError
from npu_sim.references.registry import META

OPS = load_all()


def numbers(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def gated(row, bias, gate, factor, eps):
    """Choose experts for one token; give weights, experts and probabilities."""
    k, k_group, group_count, mode, norm_type = gate
    if norm_type == 1:
        norm = [1 / (1 + math.exp(-v)) for v in row]
    else:
        total = sum(map(math.exp, row))
        norm = [math.exp(v) / total for v in row]
    score = [n + b for n, b in zip(norm, bias, strict=True)]
    size = len(row) // group_count
    groups = [score[g * size : (g + 1) * size] for g in range(group_count)]
    worth = [sum(sorted(g)[-2:]) if mode else max(g) for g in groups]
    kept = sorted(range(group_count), key=lambda g: -worth[g])[:k_group]
    allowed = [e for e in range(len(row)) if e // size in kept]
    experts = sorted(allowed, key=lambda e: -score[e])[:k]
    weights = [norm[e] for e in experts]
    if norm_type == 1:
        total = sum(weights) + eps
        weights = [w / total for w in weights]
    return [w * factor for w in weights], experts, norm


GATES = [
    # k, k_group, group_count, group_select_mode, norm_type
    (2, 1, 1, 0, 0),
    (12, 1, 1, 0, 1),
    (3, 2, 4, 0, 1),
    (4, 2, 3, 1, 1),
    (1, 1, 4, 1, 0),
]


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("tokens", [0, 1, 5])
def test_gating(gate, with_bias, tokens):
    k, k_group, group_count, mode, norm_type = gate
    x, bias = numbers(tokens, 12), numbers(12) if with_bias else None
    arguments = (x, k, k_group, group_count, mode, 0, norm_type, True, 2.5, 1e-20, bias)
    weights, experts, norm = OPS["_C_ascend::moe_gating_top_k"](*arguments)
    assert experts.dtype == torch.int32
    assert norm.dtype == torch.float32
    for i in range(tokens):
        want = gated(
            x[i].tolist(),
            [0.0] * 12 if bias is None else bias.tolist(),
            gate,
            2.5,
            1e-20,
        )
        assert weights[i].tolist() == pytest.approx(want[0], rel=1e-5)
        assert experts[i].tolist() == want[1]
        assert norm[i].tolist() == pytest.approx(want[2], rel=1e-5)
    traced = META["_C_ascend::moe_gating_top_k"](*arguments)
    assert [(t.shape, t.dtype) for t in traced] == [
        (t.shape, t.dtype) for t in (weights, experts, norm)
    ]
    normed = OPS["_C_ascend::moe_gating_top_k"](*arguments[:5], 1, *arguments[6:])
    assert torch.equal(normed[1], experts)
    if norm_type == 1:
        assert torch.equal(normed[0], weights)
    else:
        torch.testing.assert_close(normed[0], 2.5 * weights / weights.sum(-1, keepdim=True))
    same = OPS["npu::npu_moe_gating_top_k"](
        x,
        k,
        bias=bias,
        k_group=k_group,
        group_count=group_count,
        group_select_mode=mode,
        norm_type=norm_type,
        routed_scaling_factor=2.5,
    )
    assert torch.equal(same[0], weights)
    assert torch.equal(same[1], experts)
    assert not same[2].any()  # out_flag is off


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"k": 0}, "k is 0; valid: 1 to 12"),
        ({"group_count": 5}, "valid: divisors of 12"),
        ({"group_count": 6}, "groups of 2 experts"),
        ({"group_count": 4, "k_group": 5}, "k_group is 5"),
        ({"group_count": 4, "k": 4}, "k is 4; valid: 1 to 3"),
        ({"renorm": 1}, "renorm is 1"),
        ({"renorm": 1, "norm_type": 1}, "renorm is 1"),
        ({"norm_type": 2}, "norm_type is 2"),
        ({"bias": torch.ones(11)}, "bias has shape"),
        ({"bias": torch.ones(12, dtype=torch.float16)}, "dtypes differ"),
        ({"input_ids": torch.ones(2)}, "no reference for input_ids"),
    ],
)
def test_gating_refuses(changed, reason):
    arguments = {"x": numbers(2, 12), "k": 2, **changed}
    with pytest.raises(OpError, match=rf"^npu::npu_moe_gating_top_k: .*{reason}"):
        OPS["npu::npu_moe_gating_top_k"](**arguments)


def test_gating_by_softmax():
    x = numbers(3, 7)
    weights, experts, rows = OPS["npu::npu_moe_gating_top_k_softmax"](x, None, 2)
    for i in range(3):
        want = gated(x[i].tolist(), [0.0] * 7, (2, 1, 1, 0, 0), 1, 0)
        assert weights[i].tolist() == pytest.approx(want[0], rel=1e-5)
        assert experts[i].tolist() == want[1]
        assert rows[i].tolist() == [i, 3 + i]
    with pytest.raises(OpError, match="no reference for finished"):
        OPS["npu::npu_moe_gating_top_k_softmax"](x, torch.zeros(3, dtype=torch.bool), 2)


EXPERTS = torch.tensor([[2, 0], [1, 2], [2, 3]], dtype=torch.int32)


def routed(x, experts, first, last):
    """Give (row, flat choice) per copy, sorted by expert."""
    flat = [(int(e), i) for i, e in enumerate(experts.flatten()) if first <= e < last]
    return [(i // experts.shape[1], i) for _, i in sorted(flat)]


@pytest.mark.parametrize("bounds", [(0, 4), (1, 3), (3, 4)])
@pytest.mark.parametrize("row_idx_type", [0, 1])
@pytest.mark.parametrize("num_type", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_init_routing(bounds, row_idx_type, num_type, dtype):
    x, scale = numbers(3, 5, dtype=dtype), numbers(3)
    copies, rows, counts, scales = OPS["npu::npu_moe_init_routing_v2"](
        x,
        EXPERTS,
        scale=scale,
        active_num=6,
        expert_num=4,
        expert_tokens_num_type=num_type,
        expert_tokens_num_flag=True,
        active_expert_range=list(bounds),
        row_idx_type=row_idx_type,
    )
    want = routed(x, EXPERTS, *bounds)
    assert copies.shape == (6, 5)
    for place, (row, choice) in enumerate(want):
        assert torch.equal(copies[place], x[row])
        assert scales[place] == scale[row]
        assert (rows[choice] == place) if row_idx_type == 0 else (rows[place] == choice)
    assert (rows >= 0).sum() == len(want)
    assert not copies[len(want) :].any()
    per_expert = [EXPERTS.flatten().tolist().count(e) for e in range(*bounds)]
    if num_type == 0:
        per_expert = torch.tensor(per_expert).cumsum(0).tolist()
    assert counts.tolist() == per_expert
    assert counts.dtype == torch.int64


@pytest.mark.parametrize("smooth", [False, True])
def test_init_routing_quantises(smooth):
    x, scale = numbers(3, 5), numbers(2, 5).abs()
    copies, _, _, scales = OPS["npu::npu_moe_init_routing_v2"](
        x,
        EXPERTS,
        scale=scale if smooth else None,
        expert_num=4,
        expert_tokens_num_type=1,
        expert_tokens_num_flag=True,
        active_expert_range=[1, 3],
        quant_mode=1,
    )
    assert copies.dtype == torch.int8
    for place, (row, choice) in enumerate(routed(x, EXPERTS, 1, 3)):
        factor = scale[EXPERTS.flatten()[choice] - 1] if smooth else 1.0
        y, s = OPS["npu::npu_dynamic_quant"]((x[row] * factor).unsqueeze(0))
        assert torch.equal(copies[place], y[0])
        assert scales[place] == s[0]


def test_init_routing_of_no_tokens():
    copies, rows, counts, _ = OPS["npu::npu_moe_init_routing_v2"](
        torch.zeros(0, 5),
        torch.zeros(0, 2, dtype=torch.int32),
        expert_num=3,
        expert_tokens_num_type=1,
        expert_tokens_num_flag=True,
    )
    assert copies.shape == (0, 5)
    assert rows.shape == (0,)
    assert counts.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"expert_num": 3}, "expert_idx is outside"),
        ({"active_expert_range": [2, 5]}, "experts 2 to 5 of 4"),
        ({"active_num": 3}, "active_num is 3"),
        ({"expert_tokens_num_flag": False}, "valid: True"),
        ({"expert_tokens_num_type": 2}, "expert_tokens_num_type is 2"),
        ({"drop_pad_mode": 1}, "no reference for drop_pad_mode"),
        ({"quant_mode": 0}, "quant_mode is 0"),
        ({"offset": torch.ones(1)}, "no reference for offset"),
        ({"expert_idx": EXPERTS.long()}, "expert_idx is torch.int64"),
    ],
)
def test_init_routing_refuses(changed, reason):
    arguments = {
        "x": torch.ones(3, 5),
        "expert_idx": EXPERTS,
        "expert_num": 4,
        "expert_tokens_num_type": 1,
        "expert_tokens_num_flag": True,
        **changed,
    }
    with pytest.raises(OpError, match=rf"^npu::npu_moe_init_routing_v2: .*{reason}"):
        OPS["npu::npu_moe_init_routing_v2"](**arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kept", [None, 0, 4])
def test_permute_and_back(dtype, kept):
    tokens, probs = numbers(3, 4, dtype=dtype), numbers(3, 2, dtype=dtype).abs()
    copies, went = OPS["npu::npu_moe_token_permute"](tokens, EXPERTS, kept)
    order = [choice for _, choice in routed(tokens, EXPERTS, 0, 4)]
    assert went.dtype == torch.int32
    assert [order.index(i) for i in range(6)] == went.tolist()
    assert len(copies) == (kept or 6)
    for place, copy in enumerate(copies):
        assert torch.equal(copy, tokens[order[place] // 2])
    back = OPS["npu::npu_moe_token_unpermute"](copies, went, probs)
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    for i in range(3):
        want = sum(
            probs[i, j].double() * tokens[i].double()
            for j in range(2)
            if order.index(2 * i + j) < len(copies)
        )
        want = torch.zeros(4).double() + want
        torch.testing.assert_close(back[i].double(), want, atol=tolerance, rtol=tolerance)


def test_back_without_weights():
    tokens = numbers(4, 3)
    copies, went = OPS["npu::npu_moe_token_permute"](tokens, torch.tensor([3, 1, 2, 0]))
    assert torch.equal(OPS["npu::npu_moe_token_unpermute"](copies, went), tokens)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("sizes", [[2, 0, 3], [0, 0, 0], [4, 1, 2]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_matmul(sizes, listed, kind, dtype):
    x, weight, bias = numbers(7, 4, dtype=dtype), numbers(3, 4, 5, dtype=dtype), numbers(3, 5)
    groups = torch.tensor(sizes)
    (out,) = OPS["npu::npu_grouped_matmul"](
        [x],
        list(weight.unbind(0)) if listed else [weight],
        bias=list(bias.unbind(0)) if listed else [bias],
        group_list=groups if kind == 1 else groups.cumsum(0),
        group_list_type=kind,
        group_type=0,
        split_item=2,
    )
    assert out.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    group = [g for g, size in enumerate(sizes) for _ in range(size)]
    for i in range(7):
        want = torch.zeros(5).double()
        if i < len(group):
            want = x[i].double() @ weight[group[i]].double() + bias[group[i]].double()
        torch.testing.assert_close(out[i].double(), want, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("groups", [1, 3])
def test_grouped_matmul_of_eight_bits(groups):
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(-128, 128, (6, 4), generator=generator).to(torch.int8)
    weight = torch.randint(-128, 128, (groups, 4, 5), generator=generator).to(torch.int8)
    scale, tokens = numbers(groups, 5).abs() * 0.01, numbers(6).abs()
    keywords = {
        "group_list": torch.tensor([6 // groups] * groups),
        "group_list_type": 1,
        "group_type": 0,
        "split_item": 3,
    }
    (raw,) = OPS["npu::npu_grouped_matmul"]([x], [weight], output_dtype=torch.int32, **keywords)
    (out,) = OPS["npu::npu_grouped_matmul"](
        [x], [weight], scale=[scale], per_token_scale=[tokens], output_dtype=15, **keywords
    )
    assert raw.dtype == torch.int32
    assert out.dtype == torch.bfloat16
    for i in range(6):
        g = i // (6 // groups)
        want = x[i].long() @ weight[g].long()
        assert raw[i].tolist() == want.tolist()
        scaled = want.double() * scale[g].double() * tokens[i].double()
        torch.testing.assert_close(out[i].double(), scaled, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"group_list": None}, "group_list was not given"),
        ({"group_list": torch.tensor([3, 4])}, "groups of .3, 4. out of 5"),
        ({"group_list": torch.tensor([1, 1, 1])}, "weight is for 2 groups, group_list for 3"),
        ({"group_list": torch.tensor([1, 1]).int()}, "group_list is torch.int32"),
        ({"group_type": -1}, "group_type is -1"),
        ({"split_item": 0}, "split_item is 0"),
        ({"act_type": 1}, "no reference for act_type"),
        ({"scale": [torch.ones(2, 3)]}, "no reference for scale"),
        ({"weight": [torch.ones(2, 5, 3)]}, "weight has shape"),
        ({"x": [torch.ones(2, 4)] * 2}, "2 tensors in x"),
    ],
)
def test_grouped_matmul_refuses(changed, reason):
    arguments = {
        "x": [torch.ones(5, 4)],
        "weight": [torch.ones(2, 4, 3)],
        "group_list": torch.tensor([2, 3]),
        "group_list_type": 1,
        "group_type": 0,
        "split_item": 2,
        **changed,
    }
    with pytest.raises(OpError, match=rf"^npu::npu_grouped_matmul: .*{reason}"):
        OPS["npu::npu_grouped_matmul"](**arguments)


def halved_and_quantized(x, weight, weight_scale, x_scale, group, limit):
    """Quantise `silu(gate) * up` of one row in Python's numbers; give values and scale."""
    n = weight.shape[-1]
    row = [
        sum(int(a) * int(w) for a, w in zip(x, weight[group, :, j], strict=True))
        * float(weight_scale[group, j])
        * float(x_scale)
        for j in range(n)
    ]
    gate, up = row[: n // 2], row[n // 2 :]
    if limit:
        gate = [min(g, limit) for g in gate]
        up = [max(-limit, min(u, limit)) for u in up]
    values = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up, strict=True)]
    scale = max(map(abs, values)) / 127
    return [v / scale for v in values], scale


@pytest.mark.parametrize("limit", [0.0, 1.5])
@pytest.mark.parametrize("sizes", [[2, 0, 3], [4, 1, 2], [0, 0, 0]])
@pytest.mark.parametrize("name", ["", "_weight_nz"])
def test_grouped_matmul_swiglu_quant(name, sizes, limit):
    op = f"_C_ascend::grouped_matmul_swiglu_quant{name}"
    generator = torch.Generator().manual_seed(4)
    x = torch.randint(-128, 128, (7, 4), generator=generator).to(torch.int8)
    weight = torch.randint(-128, 128, (3, 4, 10), generator=generator).to(torch.int8)
    weight_scale, x_scale = numbers(3, 10).abs() * 0.01, numbers(7).abs() * 0.02
    arguments = (x, weight, weight_scale, x_scale, torch.tensor(sizes).cumsum(0))
    out, scale, offset = OPS[op](*arguments, swiglu_limit=limit)
    group = [g for g, size in enumerate(sizes) for _ in range(size)]
    for i, g in enumerate(group):
        want, step = halved_and_quantized(x[i], weight, weight_scale, x_scale[i], g, limit)
        assert float(scale[i]) == pytest.approx(step, rel=1e-5)
        assert (out[i].double() - torch.tensor(want).double()).abs().max() <= 0.5 + 1e-4
    assert not out[len(group) :].any()
    assert not scale[len(group) :].any()
    traced = META[op](*arguments, swiglu_limit=limit)
    found = [(t.shape, t.dtype) for t in (out, scale, offset)]
    assert [(t.shape, t.dtype) for t in traced] == found


def test_a_row_is_quantised_without_regard_to_other_rows():
    generator = torch.Generator().manual_seed(5)
    x = torch.randint(-128, 128, (9, 32), generator=generator).to(torch.int8)
    weight = torch.randint(-128, 128, (2, 32, 48), generator=generator).to(torch.int8)
    weight_scale, x_scale = numbers(2, 48).abs() * 0.01, numbers(9).abs()
    op = OPS["_C_ascend::grouped_matmul_swiglu_quant_weight_nz"]
    out, scale, _ = op(x, weight, weight_scale, x_scale, torch.tensor([4, 9]))
    for i in range(9):
        ends = torch.tensor([1, 1] if i < 4 else [0, 1])
        row, step, _ = op(x[i : i + 1], weight, weight_scale, x_scale[i : i + 1], ends)
        assert torch.equal(row[0], out[i])
        assert torch.equal(step[0], scale[i])


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"x": torch.ones(5, 4)}, "x is torch.float32"),
        ({"weight": torch.ones(2, 4, 1, dtype=torch.int32)}, "weight is torch.int32"),
        ({"weight": torch.ones(2, 4, 5, dtype=torch.int8)}, "weight has 5 columns; valid: even"),
        ({"weight": torch.ones(2, 3, 6, dtype=torch.int8)}, "x has shape"),
        ({"weight": torch.ones(2, 4, 10242, dtype=torch.int8)}, "10242 columns; valid: up to"),
        ({"weight_scale": torch.ones(2, 3)}, "weight_scale has shape"),
        ({"x_scale": torch.ones(4)}, "x_scale has shape"),
        ({"x_scale": torch.ones(5, dtype=torch.float16)}, "x_scale is torch.float16"),
        ({"group_list": torch.tensor([3, 2])}, "groups of .3, -1. out of 5"),
        ({"group_list": torch.tensor([5])}, "weight is for 2 groups, group_list for 1"),
        ({"bias": torch.ones(2, 6)}, "no reference for bias"),
        ({"offset": torch.ones(2, 6)}, "no reference for offset"),
    ],
)
def test_grouped_matmul_swiglu_quant_refuses(changed, reason):
    arguments = {
        "x": torch.ones(5, 4, dtype=torch.int8),
        "weight": torch.ones(2, 4, 6, dtype=torch.int8),
        "weight_scale": torch.ones(2, 6),
        "x_scale": torch.ones(5),
        "group_list": torch.tensor([2, 5]),
        **changed,
    }
    name = "_C_ascend::grouped_matmul_swiglu_quant_weight_nz"
    with pytest.raises(OpError, match=rf"^{name}: .*{reason}"):
        OPS[name](**arguments)
