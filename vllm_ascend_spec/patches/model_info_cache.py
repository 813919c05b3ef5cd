"""What cannot be noted about a model's class is not noted, without a traceback.

Why: vLLM inspects a model's class in a separate process, and stores the result in its cache. If the
cache is not writable, it logs a traceback for each class and goes on
(vllm/model_executor/models/registry.py:_LazyRegisteredModel).
How: a test file is written first. If that fails, nothing is stored or logged: the engine's start
has said in one line that the cache cannot be used (hooks/writable_dirs.py).
Until: vLLM says it in one line itself.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

from vllm_ascend_spec.patches.patching import Patches

# More than the few hundred bytes of an entry.
PROBE = 64 << 10

_patches = Patches()
revert = _patches.revert


def apply() -> None:
    """Install the patch once."""
    if _patches:
        return
    from vllm.model_executor.models.registry import _LazyRegisteredModel

    stock = _LazyRegisteredModel._save_modelinfo_to_cache

    @functools.wraps(stock)
    def _save_modelinfo_to_cache(self: Any, *args: Any, **kwargs: Any) -> None:
        if can_write(Path(self._get_cache_dir())):
            stock(self, *args, **kwargs)

    _patches.set(_LazyRegisteredModel, "_save_modelinfo_to_cache", _save_modelinfo_to_cache)


def can_write(folder: Path) -> bool:
    """Tell whether a file can be written to a folder; create the folder if needed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(PROBE))
            probe.flush()
    except OSError:
        return False
    return True
