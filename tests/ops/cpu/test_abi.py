"""The library asks nothing of PyTorch but its stable C functions, and knows no path."""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

import pytest
import torch

from tests.ops.cpu import elf
from tests.ops.cpu.marks import requires_library
from vllm_ascend_spec.ops.cpu_library import LIBRARY

SYSTEM = r"(libstdc\+\+|libm|libgcc_s|libc|libpthread|libdl|ld-linux-[\w-]+)\.so(\.\d+)?"
STABLE = re.compile(r"(aoti_)?torch_\w+")
# The standard library's names, which libstdc++ keeps: in std:: or __cxxabiv1::, operators new
# and delete, the C++ runtime's own, and C's.
STANDARD = re.compile(
    r"_Z(T[ISV])?(N[KVO]*)?(S[tabsiod]|10__cxxabiv1).*|_ZSt.*|_Zn[wa]m.*|_Zd[la]Pv.*"
    r"|__cxa_\w+|__gxx_\w+|_Unwind_\w+|__libc_\w+|__stack_chk_\w+"
)
LIBC = re.compile(r"[a-z]\w*")  # no mangled name, which starts with _Z

pytestmark = [
    requires_library,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs an ELF library"),
]


def unexpected(symbols: tuple[str, ...]) -> list[str]:
    return [
        name
        for name in symbols
        if not (STABLE.fullmatch(name) or STANDARD.fullmatch(name) or LIBC.fullmatch(name))
    ]


def test_only_torch_cpu_and_system_libraries_are_linked() -> None:
    needed = elf.read(LIBRARY).needed
    assert "libtorch_cpu.so" in needed
    others = [name for name in needed if not re.fullmatch(SYSTEM, name)]
    assert others == ["libtorch_cpu.so"]


def test_pytorch_is_called_through_stable_functions_only() -> None:
    symbols = elf.read(LIBRARY).undefined
    assert {"torch_parallel_for", "torch_library_impl", "aoti_torch_get_data_ptr"} <= set(symbols)
    assert unexpected(symbols) == []


def test_symbols_of_pytorchs_cpp_interface_would_be_noticed() -> None:
    # at::parallel_for's helper, c10::Error's constructor, torch::Library::_def
    wrong = (
        "_ZN2at18get_num_threadsEv",
        "_ZN3c105ErrorC1ENS_14SourceLocationESs",
        "_ZNR5torch7Library4_defEON3c1014FunctionSchemaE",
        "PyObject_Call",
    )
    assert unexpected(wrong) == list(wrong)
    assert unexpected(("_ZNSo9_M_insertImEERSoT_", "_Znwm", "memcpy", "exp2f")) == []


def test_pytorchs_own_library_would_not_pass() -> None:
    module = elf.read(Path(torch.__path__[0]) / "lib" / "libtorch_python.so")
    assert "libtorch_cpu.so" in module.needed or "libtorch.so" in module.needed
    assert any("3c10" in name for name in unexpected(module.undefined))


def test_no_path_is_written_down() -> None:
    # Some builds of Python put a search path into everything that is linked for them.
    of_python = sysconfig.get_config_var("LDSHARED") or ""
    assert [path for path in elf.read(LIBRARY).search_paths if path not in of_python] == []
    texts = re.findall(rb"[\x20-\x7e]{4,}", LIBRARY.read_bytes())
    places = (sys.prefix, sys.base_prefix, torch.__path__[0], str(LIBRARY.parents[2]))
    found = [text.decode() for text in texts if any(place.encode() in text for place in places)]
    assert found == []
