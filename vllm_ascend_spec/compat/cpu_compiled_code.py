"""A CPU compiles a model anew at each start, though the compiled code was saved.

Why: vLLM saves what torch.compile made and, at the next start, asks what it has loaded to
``finalize_loading`` (vllm/compilation/decorators.py:_try_load_aot_compiled_fn). The code for GPUs
has that method; a CPU's is of a class of torch, which has not. So the load "fails", a warning says
so, and the model is compiled again: 16 seconds for the zoo's target, as many for its EAGLE head.
How: the class gets the method, with nothing to do: its code is whole as soon as it is loaded. Saved
code is for one kind of vector unit, and nobody looked at that as long as it was never loaded: the
name that it is saved under (vllm/compilation/caching.py:aot_compile_hash_factors) now tells them
apart.
Until: vLLM asks for the method only where it is.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.compat.patching import Patches

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the mend once."""
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
    """Do what is left to do after compiled code was loaded: nothing."""
