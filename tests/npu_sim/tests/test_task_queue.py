"""torch_npu's queue of launches, `TASK_QUEUE_ENABLE`: off unless the environment says otherwise."""

from __future__ import annotations

import pytest
from processes import run_python

CAPTURE = """
import torch
graph = torch.npu.NPUGraph()
x = torch.ones(2, device="npu")
with torch.npu.graph(graph):
    y = x + 1
graph.replay()
print("replayed", y.tolist())
"""
UPDATES = """
import sys
import torch
sys.path.insert(0, {folder!r})
from test_graphs import Updatable
x = torch.zeros(1, device="npu")
updatable = Updatable(x)
for lengths in ((1, 1), (3, 5), (8, 2)):
    updatable.graph.replay()
    updatable.update(lengths)
    event = torch.npu.current_stream().record_event()
    event.synchronize()
    print(round(updatable.result.item(), 3), event.query())
"""


# By day test_graphs.py captures without the queue, and the test below with its first mode.
@pytest.mark.parametrize(
    ("queue", "works"),
    [
        pytest.param(None, True, marks=pytest.mark.nightly),
        pytest.param("1", True, marks=pytest.mark.nightly),
        ("2", False),
    ],
)
def test_graphs_cannot_be_captured_with_its_second_mode(queue, works):
    """torch_npu's own refusal."""
    done = run_python(CAPTURE, **({"TASK_QUEUE_ENABLE": queue} if queue else {}))
    assert ("replayed [2.0, 2.0]" in done.stdout) == works, done.stderr
    assert ("Do not support TASK_QUEUE_ENABLE = 2 during NPU graph capture" in done.stderr) != works


def test_a_replay_goes_on_when_the_queue_has_recorded_its_events(request):
    done = run_python(UPDATES.format(folder=str(request.path.parent)), TASK_QUEUE_ENABLE="1")
    assert done.stdout.splitlines()[-3:] == ["0.0 True", "3.0 True", "4.0 True"], done.stderr
