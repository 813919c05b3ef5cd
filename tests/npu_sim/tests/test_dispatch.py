"""Aten ops on NPU tensors: the CPU's kernels on the same memory."""

from __future__ import annotations

import pytest
import torch

CASES = {
    "matmul": lambda x: x @ x.t(),
    "reduction": lambda x: x.sum(-1, keepdim=True),
    "pair": lambda x: x.sort(-1, descending=True),
    "list": lambda x: torch.split(x, 2, dim=1),
    "concatenation": lambda x: torch.cat([x, x[:1]]),
    "index": lambda x: x[torch.tensor([2, 0], device=x.device), 1:],
    "mask": lambda x: x[x > 1],
    "where": lambda x: torch.where(x > 1, x, 0.5),
    "cast": lambda x: x.to(torch.bfloat16).float(),
    "softmax": lambda x: torch.softmax(x, -1),
    "scatter": lambda x: x.scatter(1, torch.ones(4, 1, dtype=torch.long, device=x.device), 7.0),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x),
    "foreach": lambda x: torch._foreach_add([x, x], 1.0),
    "factories": lambda x: (
        x.new_full((2,), 3.0) + torch.arange(2, device=x.device) + torch.zeros(2, device=x.device)
    ),
}


def flat(value):
    return [value] if isinstance(value, torch.Tensor) else list(value)


@pytest.mark.parametrize("name", CASES)
def test_results_are_the_cpus_bit_by_bit(name):
    host = torch.linspace(-3, 3, 24).view(4, 6)
    for device, cpu in zip(flat(CASES[name](host.npu())), flat(CASES[name](host)), strict=True):
        assert device.device.type == "npu"
        assert device.dtype == cpu.dtype
        assert torch.equal(device.cpu(), cpu)


def test_views_share_memory_and_in_place_ops_reach_it():
    base = torch.zeros(4, 6, device="npu")
    view = base[1:3].t()[::2]
    assert view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    view += 1
    view[0, 0] = 5
    expected = torch.zeros(4, 6)
    expected[1:3].t()[::2] += 1
    expected[1, 0] = 5
    assert torch.equal(base.cpu(), expected)


def test_overlapping_and_expanded_arguments():
    row = torch.arange(3.0, device="npu")
    assert (row.expand(2, 3) + row[:, None].expand(3, 2).t()).tolist() == [[0, 2, 4], [0, 2, 4]]


def test_out_is_filled_and_returned():
    out = torch.empty(2, 2, device="npu")
    memory = out.data_ptr()
    result = torch.add(torch.ones(2, 2, device="npu"), 2, out=out)
    assert result is out
    assert out.data_ptr() == memory
    assert out.tolist() == [[3, 3], [3, 3]]


def test_out_of_another_size_is_resized():
    values, indices = torch.empty(0, device="npu"), torch.empty(0, dtype=torch.long, device="npu")
    host = torch.tensor([[1.0, 3.0], [4.0, 2.0]])
    torch.max(host.npu(), 1, out=(values, indices))
    assert values.tolist() == [3, 4]
    assert indices.tolist() == [1, 0]
    out = torch.empty(1, device="npu")
    torch.cat([host.npu(), host.npu()], out=out.resize_(0))
    assert out.shape == (4, 2)


def test_numbers_of_the_host_take_part():
    value = torch.tensor(2.0) * torch.ones(3, device="npu")
    assert value.device.type == "npu"
    assert value.tolist() == [2, 2, 2]


def test_a_seeded_generator_draws_what_the_cpu_draws():
    draws = []
    for device in ("npu", "cpu"):
        generator = torch.Generator(device).manual_seed(7)
        first = torch.empty(5, device=device).exponential_(generator=generator)
        second = torch.randint(0, 100, (5,), generator=generator, device=device)
        again = torch.empty(5, device=device).exponential_(generator=generator.manual_seed(7))
        draws.append([first.tolist(), second.tolist(), again.tolist()])
    assert draws[0] == draws[1]
    assert draws[0][0] == draws[0][2]


def test_the_default_generator_follows_the_seed():
    torch.manual_seed(3)
    first = torch.rand(4, device="npu")
    second = torch.rand(4, device="npu")
    torch.manual_seed(3)
    assert torch.equal(torch.rand(4, device="npu"), first)
    assert not torch.equal(first, second)


def test_an_op_of_torch_npu_without_a_reference_fails_by_name():
    value = torch.ones(2, 3, device="npu")
    with pytest.raises(NotImplementedError, match="npu_sim: npu::npu_sort_v2"):
        torch.ops.npu.npu_sort_v2(value)


def test_a_reference_is_one_op_of_the_device():
    from npu_sim import counters

    x, gamma = torch.randn(3, 8), torch.rand(8)
    before = counters.snapshot()
    result = torch.ops.npu.npu_rms_norm(x.npu(), gamma.npu())[0]
    ops = (counters.snapshot() - before).ops
    assert ops["npu::npu_rms_norm"].launched == 1
    assert {name for name in ops if name.startswith("aten::")} <= {"aten::copy_"}
    expected = x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * gamma
    torch.testing.assert_close(result.cpu(), expected)


def test_python_functions_become_device_ops():
    from npu_sim.launch import as_device_op

    def double(x, scale):
        assert x.device.type == "cpu"
        x.mul_(2)
        return x, {"sum": x.sum() * scale}

    value = torch.ones(3, device="npu")
    same, more = as_device_op("test::double", double)(value, scale=10)
    assert same is value
    assert value.tolist() == [2, 2, 2]
    assert more["sum"].device.type == "npu"
    assert more["sum"].item() == 60
