"""Graphs: what a capture records, what a replay runs, and what waits for what."""

from __future__ import annotations

import pytest
import torch
from npu_sim import counters
from npu_sim.launch import as_device_op


def capture(function, **options):
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, **options):
        result = function()
    return graph, result


@pytest.fixture
def x():
    return torch.arange(4.0, device="npu")


def test_a_replay_sees_new_inputs(x):
    graph, y = capture(lambda: torch.sum(x * 2 + 1))
    for values in ([1.0, 2, 3, 4], [0.0, 0, 0, 1]):
        x.copy_(torch.tensor(values))
        graph.replay()
        assert y.item() == sum(values) * 2 + 4


def test_a_capture_leaves_no_trace(x):
    total = torch.zeros(1, device="npu")

    def step():
        total.add_(x.sum())
        x.fill_(9)

    graph, _ = capture(step)
    assert total.item() == 0
    assert x.tolist() == [0, 1, 2, 3]
    graph.replay()
    assert total.item() == 6
    graph.replay()
    assert total.item() == 6 + 36


def test_numbers_belong_to_the_capture_and_memory_to_the_replay(x):
    number, memory = torch.tensor(3.0), torch.tensor([5.0]).pin_memory()
    held = torch.empty(1, device="npu")

    def step():
        held.copy_(memory, non_blocking=True)
        return x[1] * number + held

    graph, y = capture(step)
    number.fill_(100)
    memory.fill_(7)
    graph.replay()
    assert y.item() == 10


def test_several_outputs_and_lists(x):
    graph, (parts, best) = capture(lambda: (torch.split(x, 2), x.max(0)))
    x.copy_(torch.tensor([4.0, 1, 1, 8]))
    graph.replay()
    assert [part.tolist() for part in parts] == [[4, 1], [1, 8]]
    assert (best.values.item(), best.indices.item()) == (8, 3)


def test_graphs_share_a_pool(x):
    first, y = capture(lambda: x + 1)
    second, z = capture(lambda: y * 10, pool=first.pool())
    x.fill_(2)
    first.replay()
    second.replay()
    assert z.tolist() == [30] * 4
    third, w = capture(lambda: z - 1, pool=first.pool())
    third.replay()
    assert w.tolist() == [29] * 4


def test_side_streams_take_part(x):
    side = torch.npu.Stream()

    def step():
        y = x + 1
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            z = y * 2
        torch.npu.current_stream().wait_stream(side)
        return z - 1

    graph, result = capture(step)
    x.fill_(5)
    graph.replay()
    assert result.tolist() == [11] * 4


@pytest.mark.parametrize("late", [False, True], ids=["never", "before its last op"])
def test_a_side_stream_must_come_back_to_the_capture(x, late):
    """CANN's manual on captures across streams: what joined must return, and all of it."""
    side = torch.npu.Stream()

    def step():
        side.wait_stream(torch.npu.current_stream())
        if late:
            torch.npu.current_stream().wait_stream(side)
        with torch.npu.stream(side):
            return x * 2

    with pytest.raises(RuntimeError, match=r"ends without waiting for stream \d+"):
        capture(step)
    graph, y = capture(lambda: x + 2)  # the capture is over, for the side stream too
    with torch.npu.stream(side):
        graph.replay()
        assert (x + y).tolist() == [2, 4, 6, 8]


def test_a_stream_may_come_back_by_way_of_another(x):
    first, second = torch.npu.Stream(), torch.npu.Stream()

    def step():
        first.wait_stream(torch.npu.current_stream())
        second.wait_stream(first)
        with torch.npu.stream(second):
            y = x * 2
        first.wait_stream(second)
        torch.npu.current_stream().wait_stream(first)
        return y + 1

    graph, y = capture(step)
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [11] * 4


@pytest.mark.parametrize(
    "launch",
    [lambda x: x + 1, as_device_op("test::plus", lambda a: a + 1)],
    ids=["op", "python"],
)
def test_an_op_on_a_stream_that_has_not_joined_would_not_be_in_the_graph(x, launch):
    side = torch.npu.Stream()

    def step():
        with torch.npu.stream(side):
            launch(x)

    with pytest.raises(RuntimeError, match=r"launched on stream \d+ while a graph is captured"):
        capture(step)


def test_python_ops_and_references_are_recorded(x):
    def add_in_place(a, b):
        a += b
        return a.sum()

    op = as_device_op("test::add_in_place", add_in_place)
    gamma = torch.ones(4, device="npu")
    graph, (total, normed) = capture(
        lambda: (op(x, 1.0), torch.ops.npu.npu_rms_norm(x, gamma, 0.0)[0])
    )
    assert x.tolist() == [0, 1, 2, 3]
    graph.replay()
    graph.replay()
    assert x.tolist() == [2, 3, 4, 5]
    assert total.item() == 14
    torch.testing.assert_close(normed.cpu(), x.cpu() / x.cpu().pow(2).mean().sqrt())


def test_random_numbers_go_on_in_replays():
    torch.manual_seed(1)
    graph, y = capture(lambda: torch.rand(4, device="npu"))
    draws = []
    for _ in range(2):
        graph.replay()
        draws.append(y.tolist())
    assert draws[0] != draws[1]
    torch.manual_seed(1)
    graph.replay()
    assert y.tolist() == draws[0]


@pytest.mark.parametrize(
    "step",
    [
        lambda x: x.sum().item(),
        lambda x: x.cpu(),
        lambda x: x.copy_(torch.ones(4)),
        lambda x: x[x > 1],
        lambda x: torch.npu.synchronize(),
        lambda x: torch.npu.current_stream().synchronize(),
    ],
    ids=["item", "to host", "from host", "mask", "device", "stream"],
)
def test_waiting_cannot_be_captured(x, step):
    with pytest.raises(RuntimeError, match="captur"):
        capture(lambda: step(x))
    assert (x + 1).tolist() == [1, 2, 3, 4]  # the capture is over
    graph, y = capture(lambda: x + 2)
    graph.replay()
    assert y.tolist() == [2, 3, 4, 5]


def test_an_op_that_returns_another_shape_in_a_replay_is_an_error(x):
    sizes = iter([2, 3])
    op = as_device_op("test::grow", lambda a: torch.ones(next(sizes)) * a[0])
    graph, _ = capture(lambda: op(x))
    with pytest.raises(RuntimeError, match=r"size|shape"):
        graph.replay()
    assert (x + 1).tolist() == [1, 2, 3, 4]


class Updatable:
    """A graph of one layer, `x + attention(length)`, as vllm-ascend updates them."""

    def __init__(self, x, layers=2):
        self.cache = torch.arange(16.0, device="npu").view(1, 16, 1).repeat(1, 1, 16)
        self.block_table = torch.zeros(1, 1, dtype=torch.int32, device="npu")
        self.query = torch.zeros(1, 1, 16, device="npu")
        self.events = [torch.npu.ExternalEvent() for _ in range(layers)]
        self.handles, self.outs = [], []
        self.graph, self.result = capture(lambda: self.run(x))
        self.side = torch.npu.Stream()

    def attend(self, length, out):
        """Average the first `length` entries of the cache."""
        torch.ops.npu.npu_fused_infer_attention_score.out(
            self.query, self.cache, self.cache, actual_seq_lengths=[1],
            actual_seq_lengths_kv=[length], block_table=self.block_table, num_heads=1,
            num_key_value_heads=1, input_layout="TND", block_size=16, out=out,
        )  # fmt: skip

    def run(self, x):
        stream = torch.npu.current_stream()
        for event in self.events:
            event.wait(stream)
            event.reset(stream)
            out = [torch.zeros(1, 1, 16, device="npu"), torch.zeros(1, device="npu")]
            torch.npu.graph_task_group_begin(stream)
            self.attend(1, out)
            self.handles.append(torch.npu.graph_task_group_end(stream))
            self.outs.append(out)
            x = x + out[0][0, 0, 0]
        return x

    def update(self, lengths):
        with torch.npu.stream(self.side):
            for event, handle, out, length in zip(
                self.events, self.handles, self.outs, lengths, strict=True
            ):
                torch.npu.graph_task_update_begin(self.side, handle)
                self.attend(length, out)
                torch.npu.graph_task_update_end(self.side)
                event.record(self.side)


def test_a_replay_waits_for_its_updates(x):
    updatable = Updatable(x)
    before = counters.snapshot()
    for lengths in ((1, 1), (3, 5), (8, 2)):
        x.fill_(1)
        updatable.graph.replay()
        updatable.update(lengths)
        torch.npu.current_stream().synchronize()
        # The average of 0 … n-1, for each layer.
        expected = 1 + sum((n - 1) / 2 for n in lengths)
        assert updatable.result.tolist() == pytest.approx([expected] * 4)
    events = (counters.snapshot() - before).events
    assert events["graph:replays"] == 3
    assert events["graph:updates"] == 6
    assert events["graph:pauses"] == 6


def test_updates_may_come_first(x):
    updatable = Updatable(x)
    updatable.update((5, 3))
    updatable.graph.replay()
    assert updatable.result.tolist() == pytest.approx([3, 4, 5, 6])


def test_without_its_updates_a_replay_cannot_be_waited_for(x):
    updatable = Updatable(x)
    updatable.graph.replay()
    with pytest.raises(RuntimeError, match="nobody is left"):
        torch.npu.synchronize()
    with pytest.raises(RuntimeError, match=r"aten::add\.Tensor is launched on a stream"):
        x + 1
    updatable.update((1, 1))
    assert updatable.result.tolist() == [0, 1, 2, 3]


def test_an_event_that_has_happened_can_be_waited_for_beside_a_replay_that_waits(x):
    """A thread waits for the answers of the step before while the next step is launched."""
    updatable = Updatable(x)
    before, after = torch.npu.Event(), torch.npu.Event()
    before.record()
    updatable.graph.replay()
    after.record()
    assert (before.query(), after.query()) == (True, False)
    before.synchronize()
    with pytest.raises(RuntimeError, match="nobody is left"):
        after.synchronize()
    updatable.update((1, 1))
    after.synchronize()
    assert after.query()


def test_an_update_must_match_its_group(x):
    updatable = Updatable(x)
    torch.npu.graph_task_update_begin(updatable.side, updatable.handles[0])
    with pytest.raises(RuntimeError, match="has npu::npu_fused_infer_attention_score"):
        torch.add(x, 1, out=x)
    updatable.attend(2, updatable.outs[0])
    torch.npu.graph_task_update_end(updatable.side)
