"""The references of vllm-ascend's copies of states against its kernels, interpreted."""

import pytest
import torch

if not hasattr(torch, "npu"):
    pytest.skip("torch_npu is not loaded: run with the simulator", allow_module_level=True)
states = pytest.importorskip(
    "vllm_ascend.ops.triton.mamba.state_index", reason="vllm-ascend is not installed"
)
from npu_sim.triton_bridge import INTERPRET_ALL  # noqa: E402
from vllm_ascend.ops.triton.batch_memcpy import batch_memcpy_kernel  # noqa: E402


def cache(dtype):
    """Give one with gaps between its blocks; a block is no multiple of what a kernel copies."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(7, 2, 3, 19, 23, generator=generator).to(dtype).npu()[:, 0]


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [
        (torch.float32, None),
        (torch.bfloat16, None),
        (torch.bfloat16, torch.float32),
    ],
)
def test_gather(monkeypatch, dtype, wanted):
    found = []
    for interpret in ("0", "1"):
        monkeypatch.setenv(INTERPRET_ALL, interpret)
        indices = torch.tensor([5, 0, 2], dtype=torch.int32).npu()
        starts = torch.tensor([True, True, False]).npu()
        found.append(states.gather_ssm_states(cache(dtype), indices, starts, output_dtype=wanted))
    assert torch.equal(found[0].cpu(), found[1].cpu())
    assert torch.equal(found[0][0].cpu().to(dtype), cache(dtype)[5].cpu())
    assert not found[0][2].cpu().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scatter(monkeypatch, dtype):
    found = []
    for interpret in ("0", "1"):
        monkeypatch.setenv(INTERPRET_ALL, interpret)
        into, source = cache(dtype), cache(dtype)[:2] + 1
        indices = torch.tensor([6, 1], dtype=torch.int32).npu()
        states.scatter_ssm_states_(into, indices, source.contiguous())
        found.append(into.cpu())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], cache(dtype).cpu())


def test_memory_is_copied(monkeypatch):
    """From block to block, and within one to where the source's end is overwritten."""
    found = []
    for interpret in ("0", "1"):
        monkeypatch.setenv(INTERPRET_ALL, interpret)
        memory = torch.arange(3000, dtype=torch.int32).npu()
        base = memory.data_ptr()
        copies = [(base, base + 8000, 3997), (base + 20, base, 0), (base + 4012, base + 4000, 2500)]
        pointers = torch.tensor(copies, dtype=torch.int64).npu()
        batch_memcpy_kernel[(3,)](*pointers.T.contiguous(), BLOCK_SIZE=1024)
        found.append(memory.cpu())
    assert torch.equal(found[0], found[1])
    assert found[0][1000] == 1003
    assert found[0][2998] == 998
