"""A pytest plugin: the ops' tests run on the Triton backend, in the interpreter."""

from __future__ import annotations

import os

from vllm_ascend_spec.ops.registry import PREFERENCE

# Before the tests are imported: they take their backends from here.
PREFERENCE["cpu"] = ("triton",)

# By night with the interpreter as it comes.
if "TESTS_COMPILE_ALL" not in os.environ:
    import tests.ops.triton.quick_interpreter  # noqa: F401 - importing it changes the interpreter
