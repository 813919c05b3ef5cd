"""The references of vllm-ascend's kernels of slots and of penalties against them, interpreted."""

import inspect

import pytest
import torch

if not hasattr(torch, "npu"):
    pytest.skip("torch_npu is not loaded: run with the simulator", allow_module_level=True)
slots = pytest.importorskip(
    "vllm_ascend.ops.triton.compute_slot_mapping", reason="vllm-ascend has no such kernel"
)
penalties = pytest.importorskip(
    "vllm_ascend.ops.triton.penalty", reason="vllm-ascend has no such kernel"
)
from npu_sim.references import load_all  # noqa: E402
from npu_sim.references.checks import OpError  # noqa: E402
from npu_sim.triton_bridge import INTERPRET_ALL  # noqa: E402
from vllm_ascend.ops.triton.bincount import token_bin_counts_and_mask_kernel  # noqa: E402
from vllm_ascend.ops.triton.triton_utils import init_device_properties_triton  # noqa: E402

KERNELS = {
    "_compute_slot_mapping_kernel": slots._compute_slot_mapping_kernel,
    "token_bin_counts_and_mask_kernel": token_bin_counts_and_mask_kernel,
    "apply_all_penalties_kernel": penalties.apply_all_penalties_kernel,
}
PAD = -1


@pytest.fixture(autouse=True)
def cores():
    init_device_properties_triton()


def by_both(monkeypatch, run):
    """Run by the references and by the interpreter."""
    results = []
    for interpret in ("0", "1"):
        monkeypatch.setenv(INTERPRET_ALL, interpret)
        results.append(run())
    return results


def map_slots(starts, positions, table, *, size, world=1, circular=False, tile=1024, most=48):
    """Launch the kernel as vllm-ascend does; the buffer has more behind what it may write."""
    mapping = torch.full((most + 4,), 7, dtype=torch.int32).npu()
    window = slots._next_power_of_2(-(-tile // size) + 1)
    slots._compute_slot_mapping_kernel[len(starts),](
        len(positions),
        most,
        torch.tensor(starts, dtype=torch.int32).npu(),
        torch.tensor(positions).npu(),
        table.npu(),
        table.stride(0),
        size,
        mapping,
        KV_CACHE_BLOCK_SIZE=size,
        BLOCKS_PER_KV_BLOCK=1,
        TOTAL_CP_WORLD_SIZE=world,
        TOTAL_CP_RANK=0,
        CP_KV_CACHE_INTERLEAVE_SIZE=1,
        PAD_ID=PAD,
        TILE_BLOCK_SIZE=tile,
        BLOCK_TABLE_WINDOW_SIZE=window,
        IS_CIRCULAR=circular,
    )
    return mapping.cpu()


@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize("tile", [8, 1024])
@pytest.mark.parametrize("circular", [False, True])
def test_slots(monkeypatch, size, tile, circular):
    """A prompt, an empty request, one token, and drafts whose last is behind the table's row."""
    blocks = 24 // size
    table = torch.arange(4 * blocks, dtype=torch.int32).flip(0).view(4, blocks) + 3
    positions = [*range(21), 9, *range(22, 25)]

    def run():
        given = {"size": size, "tile": tile, "circular": circular}
        return map_slots([0, 21, 21, 22, 25], positions, table, **given)

    fast, interpreted = by_both(monkeypatch, run)
    assert torch.equal(fast, interpreted)
    assert fast[-4:].tolist() == [7] * 4
    assert set(fast[25:-4].tolist()) == {PAD}
    if not circular:
        assert fast[21] == table[2, 9 // size] * size + 9 % size


def test_positions_of_nothing(monkeypatch):
    table = torch.full((1, 1), 5, dtype=torch.int32)
    given = {"size": 4, "circular": True}
    fast, interpreted = by_both(monkeypatch, lambda: map_slots([0, 3], [-1, 2, 3], table, **given))
    assert torch.equal(fast, interpreted)
    assert fast[:3].tolist() == [PAD, 22, 23]


def test_context_parallelism_is_refused(monkeypatch):
    monkeypatch.setenv(INTERPRET_ALL, "0")
    with pytest.raises(OpError, match="TOTAL_CP_WORLD_SIZE is 2; valid: 1"):
        map_slots([0, 1], [0], torch.ones(1, 1, dtype=torch.int32), size=4, world=2)


@pytest.mark.parametrize("length", [1, 300])
def test_penalties(monkeypatch, length):
    generator = torch.Generator().manual_seed(length)
    vocab, requests = 70, 5
    logits = torch.randn(requests, vocab, generator=generator)
    logits[0, :3] = torch.tensor([float("-inf"), 0.0, float("inf")])
    prompts, outputs = (
        torch.randint(0, vocab + 1, (requests, length), generator=generator) for _ in range(2)
    )
    presence, frequency = (torch.randn(requests, generator=generator) for _ in range(2))
    repetition = torch.tensor([1.0, 1.3, 0.7, 2.0, 1.0])

    def run():
        given = (logits, prompts, outputs, presence, frequency, repetition)
        return penalties.apply_penalties_triton(*(tensor.npu() for tensor in given)).cpu()

    fast, interpreted = by_both(monkeypatch, run)
    assert not torch.equal(fast, logits)
    assert torch.equal(fast, interpreted)


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_have_the_parameters_of_the_references(name):
    reference = inspect.signature(load_all()[f"triton::{name}"].__wrapped__)
    assert list(reference.parameters) == KERNELS[name].arg_names
