"""What an engine imports, for the process that engines are copied from, see `test_engine.py`."""

from __future__ import annotations

import gc
import threading

from vllm import LLM  # noqa: F401 - imported so that no copy has to
from vllm.platforms import current_platform

assert current_platform.device_type == "npu"
assert threading.active_count() == 1, "only what has one thread can be copied"
gc.collect()
gc.freeze()
