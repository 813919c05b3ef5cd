"""Registry of the device kinds, ours and other packages'. Imports neither torch nor vLLM."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.entry_points import records_of
from vllm_ascend_spec.devices import cpu, cuda, npu

GROUP = "vllm_ascend_spec.devices"
# In the order in which they are tried.
BUILT_IN: Mapping[str, Device] = {module.DEVICE.name: module.DEVICE for module in (npu, cuda, cpu)}


@functools.cache
def all_devices() -> Mapping[str, Device]:
    """Return every kind of device by its name, in the order in which they are tried.

    Other packages' kinds come first: whoever installs one wants it used where its device is found.

    Raises:
        ExtensionError: a device of another package cannot be used.
    """
    records = records_of(GROUP, Device, BUILT_IN.values())
    others = {name: record for name, record in records.items() if name not in BUILT_IN}
    return {**others, **BUILT_IN}
