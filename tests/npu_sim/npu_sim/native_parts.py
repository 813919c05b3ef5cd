"""Load the native parts: the fake CANN before torch_npu, the PyTorch extension after it."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from npu_sim import build

EXTENSION = "_npu_sim_native"


@functools.cache
def folder() -> Path:
    """Return the folder of the built libraries; builds them if they are not there."""
    return build.build()


def load_fake_cann() -> None:
    """Load the runtime under all of CANN's library names, for torch_npu to find."""
    runtime = folder() / build.RUNTIME
    others = sorted(path for path in folder().glob("lib*.so") if path != runtime)
    for library in [runtime, *others]:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


@functools.cache
def native() -> ModuleType:
    """Return the PyTorch extension."""
    spec = importlib.util.spec_from_file_location(EXTENSION, folder() / build.EXTENSION)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[EXTENSION] = module
    return module
