"""What test_triton_bridge.py runs in a process of its own; prints what went wrong, as JSON."""

import json
import traceback

import pytest
import torch
from npu_sim import triton_bridge

launches, aliased = [], []


def alias(tensor):
    aliased.append(tensor)
    return tensor


def as_device_op(name, function):
    launches.append(name)
    return function


triton_bridge.install(alias, as_device_op)

# Only now: Triton decides about its interpreter when it is imported.
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.language.extra.cann import libdevice  # noqa: E402
from triton.language.extra.cann.extension import (  # noqa: E402
    extract_slice,
    get_element,
    insert_slice,
    sort,
)


@triton.jit
def add_one(x_ptr, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)


@triton.jit
def total(pair, extra, out, with_extra: tl.constexpr):
    value = tl.load(pair[0]) + tl.load(pair[1])
    if with_extra:
        value += tl.load(extra)
    tl.store(out, value)


@triton.jit
def wrong(x_ptr):
    tl.store(x_ptr, undefined_name)  # noqa: F821


@triton.jit
def additions(x_ptr, out_ptr, which):
    x = tl.load(x_ptr + tl.arange(0, 8))
    tl.store(out_ptr, get_element(x, (which,)))
    part = extract_slice(x, (2,), (4,), (1,))
    tl.store(out_ptr + 1 + tl.arange(0, 4), part)
    tl.store(out_ptr + 5 + tl.arange(0, 8), insert_slice(x, part * 0, (1,), (4,), (1,)))
    tl.store(out_ptr + 13 + tl.arange(0, 8), sort(x, dim=0, descending=True))
    tl.store(out_ptr + 21 + tl.arange(0, 8), libdevice.nearbyint(x))
    tl.store(out_ptr + 29 + tl.arange(0, 8), libdevice.isnan(x / (x - x)).to(tl.float32))


@triton.jit
def compare(x_ptr, out_ptr, block: tl.constexpr):
    at = tl.arange(0, block)
    first = tl.load(x_ptr)
    chosen = (at < 3) & (first != 0.0) & (tl.max(tl.load(x_ptr + at), axis=0) > 1)
    tl.store(out_ptr + at, chosen.to(tl.int32))


@triton.autotune(
    configs=[triton.Config({"block": 4}), triton.Config({"block": 8})], key=["n", "no_argument"]
)
@triton.jit
def tuned(x_ptr, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) + block, mask=at < n)


def a_kernel_writes_to_the_tensor_itself():
    storage = torch.zeros(3, 14)
    view = storage[1, 2:13]  # an odd length, in the middle of something
    address = view.data_ptr()
    for _ in range(2):
        add_one[(lambda meta: (triton.cdiv(11, meta["block"]),))](view, 11, block=4)
    assert view.data_ptr() == address
    assert storage.sum() == 22
    assert (view == 2).all(), storage
    assert launches == ["triton::add_one"] * 2, launches
    assert len(aliased) == 2
    assert all(tensor is view for tensor in aliased)


def a_view_of_another_dtype():
    x = torch.zeros(5, dtype=torch.int32)
    add_one[(2,)](triton.reinterpret(x, tl.uint32), 5, block=4)
    assert x.tolist() == [1] * 5


def keywords_tuples_and_missing_tensors():
    a, b, out = torch.tensor([2]), torch.tensor([5]), torch.zeros(1, dtype=torch.int64)
    total[(1,)]((a, b), extra=None, out=out, with_extra=False)
    assert out.item() == 7
    total[(1,)]((a, b), extra=a, out=out, with_extra=True)
    assert out.item() == 9


def an_error_in_a_kernel_is_raised():
    with pytest.raises(triton.runtime.errors.InterpreterError, match="undefined_name"):
        wrong[(1,)](torch.zeros(1))


def additions_of_triton_ascend():
    x = torch.tensor([3.0, 1.5, 0.5, 2.5, -1.5, 9.0, 4.0, 0.0])
    out = torch.full((37,), -7.0)
    additions[(1,)](x, out, 5)
    assert out[0] == 9
    assert out[1:5].tolist() == x[2:6].tolist()
    assert out[5:13].tolist() == [3.0, 0, 0, 0, 0, 9.0, 4.0, 0.0]
    assert out[13:21].tolist() == sorted(x.tolist(), reverse=True)
    assert out[21:29].tolist() == [3, 2, 0, 2, -2, 9, 4, 0]  # halves go to the even neighbour
    assert out[29:37].tolist() == [0, 0, 0, 0, 0, 0, 0, 1]


def scalars_that_are_compared_are_bits():
    out = torch.zeros(4, dtype=torch.int32)
    compare[(1,)](torch.tensor([0.5, 2, 0, 0]), out, block=4)
    assert out.tolist() == [1, 1, 1, 0]
    compare[(1,)](torch.tensor([0.0, 2, 0, 0]), out, block=4)
    assert out.tolist() == [0, 0, 0, 0]


def a_tuned_kernel_takes_its_first_configuration():
    x = torch.zeros(6)
    tuned[(lambda meta: (triton.cdiv(6, meta["block"]),))](x, 6)
    assert x.tolist() == [4] * 6  # run once


def triton_knows_one_device():
    active = triton.runtime.driver.active
    assert active.get_current_target().backend == "npu"
    properties = active.utils.get_device_properties(0)
    assert properties["num_vectorcore"] == 2 * properties["num_aicore"]


def outcome(case):
    """Run one case; give what went wrong."""
    try:
        case()
    except Exception:
        return traceback.format_exc()
    return ""


CASES = [
    a_kernel_writes_to_the_tensor_itself,
    a_view_of_another_dtype,
    keywords_tuples_and_missing_tensors,
    an_error_in_a_kernel_is_raised,
    additions_of_triton_ascend,
    scalars_that_are_compared_are_bits,
    a_tuned_kernel_takes_its_first_configuration,
    triton_knows_one_device,
]
print(json.dumps({case.__name__: outcome(case) for case in CASES}))
