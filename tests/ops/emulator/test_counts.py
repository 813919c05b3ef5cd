"""What a launch counts, and what does not compile."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from pathlib import Path

import pytest
import torch

from ops.emulator.report import BrokenRule, EmulatorError, EmulatorOptions, EmulatorStats
from tests.ops.emulator import build as builder
from tests.ops.emulator.build import Host, build, requires_compiler

pytestmark = requires_compiler

PROBES = Path(__file__).parent / "probes"


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize(("cores", "count"), [(1, 256), (2, 1000), (3, 1000), (8, 100)])
def test_counts_are_exact(cores: int, count: int, checks: bool):
    host = Host(build(PROBES / "counts.cpp", optimise=False), checks=checks)
    x, y, marks = torch.randn(count), torch.zeros(count), torch.zeros(16)
    stats = host("scale_emulator", cores, x, y, marks, count)
    assert torch.equal(y, 2 * x + 1)
    tiles = -(-count // 256)
    # Core 0 reads and writes one mark; every core cleans its cache.
    assert stats.pipes("instructions") == {
        "S": cores + 2,
        "V": 2 * tiles,
        "MTE2": tiles,
        "MTE3": tiles,
    }
    assert stats.pipes("gm_read_bytes") == {"S": 4, "V": 0, "MTE2": 4 * count, "MTE3": 0}
    assert stats.pipes("gm_write_bytes") == {"S": 4, "V": 0, "MTE2": 0, "MTE3": 4 * count}
    assert stats.vector_bytes == 2 * 4 * count
    assert (stats.scalar_gm_reads, stats.scalar_gm_writes) == (1, 1)
    assert (stats.sync_alls, stats.num_cores) == (2, cores)
    assert list(stats.peak_ub)[: cores + 1] == [4096] * cores + [0]
    assert sum(stats.core_gm_bytes) == 8 * count + 8
    assert sum(stats.core_instructions) == sum(stats.instructions)
    own = [len(range(core, tiles, cores)) for core in range(cores)]
    assert list(stats.core_instructions)[1:cores] == [4 * n + 1 for n in own[1:]]


def test_what_the_device_lacks_does_not_compile():
    source = PROBES / "types.cpp"
    expected = {
        number: text.rsplit("// refused: ", 1)[1]
        for number, text in enumerate(source.read_text().splitlines(), 1)
        if "// refused: " in text
    }
    command = [builder.COMPILER, "-std=c++17", "-fsyntax-only", f"-I{builder.INCLUDE}", str(source)]
    environment = os.environ | {"LC_ALL": "C"}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    refused, number = {}, 0
    for line in run.stderr.splitlines():
        if used := re.search(r"types\.cpp:(\d+):\d+: +required from here", line):
            number = int(used[1])
        elif "error: static assertion failed: " in line:
            refused[number] = line.rsplit("failed: ", 1)[1]
    assert refused.keys() == expected.keys()
    for number, reason in expected.items():
        assert re.search(rf"\b{re.escape(reason)}\b", refused[number]), (number, refused[number])


def test_libraries_are_built_once_and_again_after_a_change(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("VLLM_ASCEND_SPEC_EMULATOR_CACHE", str(tmp_path / "cache"))
    source, header = tmp_path / "host.cpp", tmp_path / "kernel.h"
    header.write_text("inline int value() { return 1; }\n")
    source.write_text('#include "kernel.h"\nextern "C" int get() { return value(); }\n')
    first = build(source, optimise=False)
    assert builder.load(first).get() == 1
    assert build(source, optimise=False) == first
    header.write_text("inline int value() { return 2; }\n")
    second = build(source, optimise=False)
    assert second != first
    assert builder.load(second).get() == 2
    assert builder.included(source, []) == [source.resolve(), header.resolve()]
    header.write_text("inline int value() { return }\n")
    with pytest.raises(RuntimeError, match="error: expected"):
        build(source, optimise=False)
    assert {path.suffix for path in (tmp_path / "cache").iterdir()} == {".so", ".lock"}


def test_a_report_is_an_exception_with_its_parts():
    host = Host(build(PROBES / "counts.cpp", optimise=False))
    x, y, marks = torch.randn(100), torch.zeros(100), torch.zeros(16)
    with pytest.raises(EmulatorError, match=r"^scale, core -1, launch: 65 blocks"):
        host("scale_emulator", 65, x, y, marks, 100)


def test_python_and_the_header_agree_on_the_structs():
    sizes = torch.zeros(3, dtype=torch.int64)
    library = builder.load(build(PROBES / "counts.cpp", optimise=False))
    library.struct_sizes(ctypes.c_void_p(sizes.data_ptr()))
    structs = (EmulatorOptions, EmulatorStats, BrokenRule)
    assert sizes.tolist() == [ctypes.sizeof(struct) for struct in structs]
