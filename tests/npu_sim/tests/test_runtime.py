"""The fake CANN runtime as torch_npu sees it: devices, memory, copies, streams, events."""

from __future__ import annotations

import pytest
import torch
from processes import run_python

DTYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
    torch.int8, torch.uint8, torch.bool,
)  # fmt: skip


def test_torch_sees_the_device():
    assert torch.npu.is_available()
    assert torch.accelerator.current_accelerator().type == "npu"
    assert "Ascend910" in torch.npu.get_device_name(0)


def test_the_environment_sets_the_number_of_devices():
    done = run_python("import torch; print(torch.npu.device_count())", NPU_SIM_DEVICES="3")
    assert done.stdout.split()[-1] == "3", done.stderr


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(RuntimeError, match="NPU_SIM_DEVICES"):
        torch.npu.set_device(torch.npu.device_count())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies_there_and_back_keep_the_bits(dtype):
    host = (torch.arange(24) % 5).to(dtype).view(2, 3, 4)
    device = host.to("npu")
    assert device.device.type == "npu"
    assert device.dtype == dtype
    assert torch.equal(device.cpu(), host)
    assert torch.equal(device.transpose(0, 2).cpu(), host.transpose(0, 2))


def test_copies_convert_and_keep_strides_apart():
    device = torch.empty(3, 2, device="npu", dtype=torch.float16).t()
    device.copy_(torch.arange(6).view(2, 3))
    assert device.tolist() == [[0, 1, 2], [3, 4, 5]]
    host = torch.zeros(2, 3, dtype=torch.int32)
    assert host.copy_(device) is host
    assert host.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_pinned_memory_is_host_memory():
    host = torch.arange(5).pin_memory()
    assert host.is_pinned()
    assert host.to("npu", non_blocking=True).tolist() == [0, 1, 2, 3, 4]


def test_memory_is_accounted_for():
    before, total = torch.npu.mem_get_info()
    block = torch.empty(64 << 20, dtype=torch.uint8, device="npu")
    after, same_total = torch.npu.mem_get_info()
    assert before - after >= 64 << 20  # torch_npu rounds up
    assert same_total == total
    del block
    torch.npu.empty_cache()
    assert torch.npu.mem_get_info()[0] >= before


def test_full_memory_is_an_error_that_torch_knows():
    code = """
import torch
try:
    torch.empty(2 << 30, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError as error:
    print("out of memory")
"""
    done = run_python(code, NPU_SIM_MEMORY_GB="1")
    assert "out of memory" in done.stdout, done.stderr


def test_streams_run_in_the_order_of_the_program():
    value = torch.zeros(3, device="npu")
    side = torch.npu.Stream()
    with torch.npu.stream(side):
        value += 1
        done = side.record_event()
    torch.npu.current_stream().wait_event(done)
    value *= 2
    assert done.query()
    assert value.tolist() == [2, 2, 2]


def test_events_measure_time():
    begin, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.ones(10, device="npu").sum()
    end.record()
    end.synchronize()
    assert 0 <= begin.elapsed_time(end) < 60_000


def test_a_stream_that_waits_for_a_late_event_takes_no_op():
    event, side = torch.npu.ExternalEvent(), torch.npu.Stream()
    event.wait(side)
    value = torch.zeros(2, device="npu")
    with torch.npu.stream(side), pytest.raises(RuntimeError, match=r"aten::add_.*ExternalEvent"):
        value += 1
    with pytest.raises(RuntimeError, match="nobody is left"):
        side.synchronize()
    event.record(torch.npu.current_stream())
    side.synchronize()
    with torch.npu.stream(side):
        value += 1
    assert value.tolist() == [1, 1]


def test_what_cann_has_and_the_simulator_has_not_fails_by_name():
    import ctypes

    from npu_sim.native_parts import folder

    runtime = ctypes.CDLL(str(folder() / "libascendcl.so"))
    assert runtime.aclopCompileAndExecute() != 0
    runtime.aclGetRecentErrMsg.restype = ctypes.c_char_p
    assert b"aclopCompileAndExecute is not simulated" in runtime.aclGetRecentErrMsg()
