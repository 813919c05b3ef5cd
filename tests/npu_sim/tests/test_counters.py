"""What is counted, and what is not."""

from __future__ import annotations

import json

import pytest
import torch
from npu_sim import counters
from npu_sim.launch import as_device_op

FLOATS = 1000
BYTES = 4 * FLOATS


@pytest.fixture
def x():
    return torch.ones(FLOATS, device="npu")


def counted(function):
    before = counters.snapshot()
    function()
    return counters.snapshot() - before


@pytest.mark.parametrize(
    ("name", "step", "read", "written"),
    [
        ("aten::add.Tensor", lambda x: x + x[:1], BYTES + 4, BYTES),
        ("aten::add_.Tensor", lambda x: x.add_(x), 2 * BYTES, BYTES),
        ("aten::fill_.Scalar", lambda x: x.fill_(2), 0, BYTES),
        ("aten::sum", lambda x: x.sum(), BYTES, 4),
        ("aten::index_select", lambda x: x.index_select(0, ROWS.npu()), 8 * 2 + 8, 8),
        ("aten::mul.Tensor", lambda x: x[:1].expand(FLOATS) * x, 4 + BYTES, BYTES),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bytes_are_those_of_the_tensors(x, name, step, read, written):
    op = counted(lambda: step(x)).ops[name]
    assert (op.launched, op.bytes_read, op.bytes_written) == (1, read, written)


ROWS = torch.tensor([3, 5])


def test_views_and_allocations_are_no_ops(x):
    assert counted(lambda: (x.view(10, 100).t()[1:], torch.empty(5, device="npu"))).ops == {}


def test_copies_between_host_and_device(x):
    pinned = torch.empty(FLOATS).pin_memory()
    assert counted(lambda: torch.ones(FLOATS).npu()).host_to_device == (1, BYTES)
    to_host = counted(x.cpu)
    assert to_host.device_to_host == (1, BYTES)
    assert to_host.syncs == {"copy": 1}
    assert to_host.ops == {}
    free = counted(lambda: pinned.copy_(x, non_blocking=True))
    assert free.device_to_host == (1, BYTES)
    assert free.syncs_total == 0
    pageable = counted(lambda: torch.empty(FLOATS).copy_(x, non_blocking=True))
    assert pageable.syncs == {"copy": 1}


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda x: x[0].item(), "item"),
        (lambda x: bool((x > 0).any()), "item"),
        (lambda x: torch.npu.synchronize(), "device"),
        (lambda x: torch.npu.current_stream().synchronize(), "stream"),
        (lambda x: torch.npu.current_stream().record_event().synchronize(), "event"),
        (lambda x: x.nonzero(), "result"),
        (lambda x: x[x > 0], "result"),
        (lambda x: torch.equal(x, x), "result"),
        (lambda x: x.tolist(), "copy"),
    ],
    ids=["item", "bool", "device", "stream", "event", "nonzero", "mask", "equal", "list"],
)
def test_waits_are_counted_by_reason(x, step, reason):
    assert counted(lambda: step(x)).syncs.get(reason, 0) >= 1


def test_indexing_by_numbers_does_not_wait(x):
    rows = ROWS.npu()
    assert counted(lambda: (x[rows], x.index_put_((rows,), x[:2]))).syncs_total == 0


def test_graphs_are_counted_apart(x):
    graph = torch.npu.NPUGraph()

    def capture():
        with torch.npu.graph(graph):
            y = x * 2
            y += 1

    captured = counted(capture)
    assert captured.captures == 1
    assert captured.ops_executed == 0
    assert captured.ops["aten::mul.Tensor"].captured == 1
    replayed = counted(lambda: (graph.replay(), graph.replay()))
    assert replayed.replays == 2
    assert replayed.ops_launched == 0
    assert replayed.ops_replayed == 4
    assert replayed.bytes_written == 4 * BYTES


def test_scopes_add_up_and_nest(x):
    counters.reset_scopes()
    for _ in range(2):
        with counters.scope("outer"):
            x.add_(1)
            with counters.scope("inner"):
                x.mul_(2)
                counters.count("draft_tokens", 8)
    x.add_(1)
    scopes = counters.scopes()
    assert scopes["outer"].ops_launched == 4
    assert scopes["inner"].ops_launched == 2
    assert scopes["inner"].custom == {"draft_tokens": 16}
    assert scopes["outer"].custom == {"draft_tokens": 16}
    counters.reset_scopes()
    assert counters.scopes() == {}


def test_a_python_op_counts_once(x):
    step = counted(lambda: as_device_op("test::many", lambda a: a.exp().log().sum())(x))
    assert set(step.ops) == {"test::many"}
    assert step.ops_launched == 1


def test_a_snapshot_is_plain_numbers(x):
    record = counted(lambda: torch.add(x, 1).cpu()).as_dict()
    assert json.loads(json.dumps(record)) == record
    assert record["ops_launched"] == 1
    assert record["device_to_host_bytes"] == BYTES
