"""Skip marks of the C++ backend's tests; each gives its reason."""

from __future__ import annotations

import pytest

from vllm_ascend_spec.ops import cpu_library

requires_library = pytest.mark.skipif(
    cpu_library.library_problem() is not None, reason=str(cpu_library.library_problem())
)
