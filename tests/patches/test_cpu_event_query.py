"""Events on a CPU say that they are over."""

from __future__ import annotations

import pytest
from vllm.platforms import current_platform

from tests.marks import requires_cpu_build
from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches import cpu_event_query as patch

pytestmark = requires_cpu_build


def test_stock_fault_and_patch(take_out: TakeOut) -> None:
    current_platform.import_kernels()
    from vllm.v1.worker.cpu.shm import _EventPlaceholder

    take_out(patch)
    with pytest.raises(AttributeError, match="query"):
        _EventPlaceholder().query()
    patch.apply()
    assert _EventPlaceholder(blocking=True).query() is True
    patch.revert()
    assert not hasattr(_EventPlaceholder(), "query")
