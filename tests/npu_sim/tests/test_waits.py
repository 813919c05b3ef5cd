"""What a program may rely on before it has waited for the device."""

from __future__ import annotations

import pytest
import torch
from npu_sim import counters
from processes import run_python

OVERWRITTEN = r"overwritten before the host had waited.*16 bytes.*test_waits\.py:\d+"
NUMBERS = [1, 2]


def pinned(values=NUMBERS, **options) -> torch.Tensor:
    return torch.tensor(values, **options).pin_memory()


def stream_wait() -> None:
    torch.npu.current_stream().synchronize()


def event_wait() -> None:
    torch.npu.current_stream().record_event().synchronize()


def event_query() -> None:
    assert torch.npu.current_stream().record_event().query()


def number_read() -> None:
    torch.ones(1, device="npu").item()


def wait_on_another_stream() -> None:
    side = torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    side.synchronize()


def wait_for_a_value_on_another_stream() -> None:
    side, event = torch.npu.Stream(), torch.npu.ExternalEvent()
    event.record(torch.npu.current_stream())
    event.wait(side)
    side.synchronize()


def blocking_copy() -> None:
    torch.ones(1, device="npu").cpu()


WAITS = [
    stream_wait, event_wait, event_query, number_read, wait_on_another_stream,
    wait_for_a_value_on_another_stream, blocking_copy, torch.npu.synchronize,
]  # fmt: skip


@pytest.mark.parametrize("wait", WAITS)
def test_a_pinned_buffer_may_be_overwritten_after_a_wait_only(wait):
    host = pinned()
    device = host.to("npu", non_blocking=True)
    host.fill_(7)
    with pytest.raises(RuntimeError, match=OVERWRITTEN):
        wait()
    device.copy_(host, non_blocking=True)
    wait()
    host.fill_(9)
    wait()
    assert device.tolist() == [7, 7]


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.int64, torch.int32, torch.bfloat16], ids=str
)
def test_a_pinned_target_holds_poison_until_a_wait(wait, dtype):
    host = pinned([0, 0], dtype=dtype)
    host.copy_(torch.tensor(NUMBERS, dtype=dtype).to("npu"), non_blocking=True)
    assert min(host.tolist()) > 1e9
    wait()
    assert host.tolist() == NUMBERS


def test_a_target_gets_what_the_device_had_at_the_launch():
    device, host = torch.tensor(NUMBERS, device="npu"), pinned()
    host.copy_(device, non_blocking=True)
    device.fill_(5)
    torch.npu.synchronize()
    assert host.tolist() == NUMBERS


def test_waiting_for_something_else_is_no_wait():
    side, other = torch.npu.Stream(), torch.npu.Stream()
    earlier = side.record_event()
    source, target = pinned(), pinned([0, 0])
    with torch.npu.stream(side):
        source.to("npu", non_blocking=True)
        target.copy_(torch.ones(2, dtype=torch.int64, device="npu"), non_blocking=True)
    other.synchronize()
    earlier.synchronize()
    assert target.tolist() != [1, 1]
    source.fill_(7)
    with pytest.raises(RuntimeError, match=OVERWRITTEN):
        side.synchronize()
    assert target.tolist() == [1, 1]


def test_a_buffer_that_is_let_go_is_not_used_again_before_the_wait():
    device = pinned().to("npu", non_blocking=True)
    pinned([8, 9])  # would overwrite the same block
    torch.npu.synchronize()
    assert device.tolist() == NUMBERS


def test_the_device_finds_what_an_earlier_copy_has_left_in_pinned_memory():
    host = pinned([0, 0])
    host.copy_(torch.tensor(NUMBERS, device="npu"), non_blocking=True)
    assert host.to("npu", non_blocking=True).tolist() == NUMBERS


@pytest.mark.parametrize("is_ordered", [True, False])
@pytest.mark.parametrize("part", [slice(0, 4), slice(1, 3), slice(2, 4)])
def test_the_device_may_overwrite_what_an_earlier_copy_has_read(part, is_ordered):
    """On a stream that has waited for that copy."""
    host, side = pinned([1, 2, 3, 4]), torch.npu.Stream()
    new = torch.tensor([9, 8, 7, 6], device="npu")
    device = host.to("npu", non_blocking=True)
    if is_ordered:
        side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        host[part].copy_(new[part], non_blocking=True)
    if not is_ordered:
        with pytest.raises(RuntimeError, match="overwritten before the host had waited"):
            torch.npu.synchronize()
        return
    torch.npu.synchronize()
    assert host[part].tolist() == new[part].tolist()
    assert device.tolist() == [1, 2, 3, 4]


def test_what_the_device_has_not_overwritten_has_to_stay():
    host, new = pinned([1, 2, 3, 4]), torch.tensor([8, 8], device="npu")
    host.to("npu", non_blocking=True)
    host[1:3].copy_(new, non_blocking=True)
    host[3] = 5
    with pytest.raises(RuntimeError, match=r"overwritten before the host had waited.*8 bytes"):
        torch.npu.synchronize()


def test_replayed_copies_wait_like_others():
    source, target = pinned(), pinned([0, 0])
    device = torch.zeros(2, dtype=torch.int64, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        device.copy_(source, non_blocking=True)
        target.copy_(device, non_blocking=True)
    assert target.tolist() == [0, 0]
    graph.replay()
    assert target.tolist() != NUMBERS
    torch.npu.synchronize()
    assert target.tolist() == NUMBERS
    graph.replay()
    source.fill_(3)
    with pytest.raises(RuntimeError, match=OVERWRITTEN):
        torch.npu.synchronize()


NO_ASYNCHRONOUS_COPY = {
    "not pinned": lambda device: (torch.zeros(2), device),
    "not contiguous": lambda device: (torch.zeros(2, 2).pin_memory()[:, 0], device),
    "into the host": lambda device: (device, torch.zeros(2)),
    "into columns": lambda device: (device, torch.zeros(2, 2).pin_memory()[:, 0]),
}


@pytest.mark.parametrize("case", NO_ASYNCHRONOUS_COPY)
def test_copies_that_torch_npu_cannot_do_asynchronously_are_waits(case):
    source, target = NO_ASYNCHRONOUS_COPY[case](torch.ones(2, device="npu"))
    before = counters.snapshot()
    target.copy_(source, non_blocking=True)
    assert (counters.snapshot() - before).syncs == {"copy": 1}
    source.fill_(4)
    torch.npu.synchronize()
    assert target.tolist() == ([0, 0] if target.device.type == "npu" else [1, 1])


TOLERATED = """
import torch

def launch(host):
    return host.to("npu", non_blocking=True)

def other(host):
    return host.to("npu", non_blocking=True)

for function in (launch, other):
    host = torch.ones(2).pin_memory()
    device = function(host)
    host.fill_(5)
    try:
        torch.npu.synchronize()
        print(function.__name__, device.tolist())
    except RuntimeError as error:
        print(function.__name__, "in other" in str(error))
"""


def test_a_place_may_be_named_where_it_is_no_error():
    done = run_python(TOLERATED, NPU_SIM_OVERWRITTEN="<string>:launch")
    assert done.stdout.splitlines()[-2:] == ["launch [1.0, 1.0]", "other True"], done.stderr
