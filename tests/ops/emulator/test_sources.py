"""What the emulator cannot refuse and the device lacks: read from the kernels' sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.ops.emulator.build import ROOT, included

KERNELS = ROOT / "ops" / "ascendc"
# The part of the language and the library that a vector core does not have.
LACKING = {
    "the C++ library": r"\bstd::",
    "double precision": r"\bdouble\b(?!\s*\*)",
    "memory of its own": r"\b(?:new|delete|malloc|free)\b(?!\s*=)",
    "exceptions": r"\b(?:throw|try|catch)\b",
    "virtual functions": r"\bvirtual\b",
    "run-time types": r"\b(?:dynamic_cast|typeid)\b",
    "statics": r"\bstatic\b(?!\s+(?:constexpr|inline|SPEC_FN|__aicore__))",
    "the C library": r"\b(?:memcpy|memset|printf|fabs|expf?|logf?|sqrtf?)\s*\(",
}
HEADERS = {"kernel_operator.h"}


def device_sources() -> list[Path]:
    """Return every file that becomes part of a kernel."""
    hosts = sorted(KERNELS.glob("*/emulator_host.cpp"))
    entries = [host.parent / f"{host.parent.name}.cpp" for host in hosts]
    return sorted({path for entry in entries for path in included(entry, [])})


def code_of(text: str) -> str:
    """Return C++ without comments and strings."""
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"', " ", text, flags=re.DOTALL)


@pytest.mark.parametrize("path", device_sources(), ids=lambda p: str(p.relative_to(KERNELS)))
def test_kernels_use_what_the_device_has(path: Path):
    text = path.read_text()
    found = [what for what, pattern in LACKING.items() if re.search(pattern, code_of(text))]
    assert not found
    for kind, name in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)', text, re.MULTILINE):
        fine = (
            name == "cstdint" if kind == "<" else name in HEADERS or (path.parent / name).is_file()
        )
        assert fine, f"includes {name}"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("std::vector<int> v;", "the C++ library"),
        ("double x = 0;", "double precision"),
        ("int* p = new int;", "memory of its own"),
        ("throw 1;", "exceptions"),
        ("virtual void f();", "virtual functions"),
        ("static int calls = 0;", "statics"),
        ("float y = expf(x);", "the C library"),
    ],
)
def test_what_is_lacking_is_found(line: str, what: str):
    assert re.search(LACKING[what], code_of(line))
    harmless = "static constexpr int n = 1;  // std::vector, double, new and throw in a comment"
    assert not any(re.search(pattern, code_of(harmless)) for pattern in LACKING.values())
