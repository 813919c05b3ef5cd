"""A CPU compiles a model anew at each start, though the compiled code was saved.

Why: vLLM saves what torch.compile made and, at the next start, calls ``finalize_loading`` on the
loaded code (vllm/compilation/decorators.py:_try_load_aot_compiled_fn). Code for GPUs has that
method; code for a CPU is of a torch class that lacks it. So the load "fails" with a warning, and
the model is compiled again: 16 seconds for the zoo's target, and as many for its EAGLE head.
How: the class gets the method, which does nothing: its code is complete once loaded. Saved code
fits one kind of vector unit only, which did not matter while it was never loaded. The name under
which it is saved (vllm/compilation/caching.py:aot_compile_hash_factors) now includes that kind.
Until: vLLM calls the method only where it exists.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    import torch
    from torch._dynamo.aot_compile_types import BundledAOTAutogradSerializableCallable
    from vllm.compilation import caching

    stock = caching.aot_compile_hash_factors

    def aot_compile_hash_factors(vllm_config: Any) -> list[str]:
        return [*stock(vllm_config), torch.backends.cpu.get_cpu_capability()]

    _patches.set(caching, "aot_compile_hash_factors", aot_compile_hash_factors)
    _patches.set(BundledAOTAutogradSerializableCallable, "finalize_loading", finalize_loading)


def finalize_loading(_code: Any, _vllm_config: Any) -> None:
    """Do nothing: compiled code for a CPU is complete once it is loaded."""
