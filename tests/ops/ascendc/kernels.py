"""The AscendC kernels, compiled for the twin."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ops.emulator.library import Twin
from tests.ops.emulator.build import ROOT, build

SOURCES = ROOT / "ops" / "ascendc"
OPS = ("verify_greedy", "verify_sample", "grammar_mask")
CORES = (1, 3, 8, 40)
# A list this short holds few brackets, so that searches have to narrow them.
SHORT_LISTS = ("SPEC_LISTED=64",)


@cache
def kernels(defines: tuple[str, ...] = ()) -> Path:
    """Compile all kernels, with macros only verify_sample's; return the folder Twin wants."""
    folder = Path(tempfile.mkdtemp(prefix="vllm-ascend-spec-kernels-"))
    for op in ("verify_sample",) if defines else OPS:
        (folder / f"{op}.so").symlink_to(build(SOURCES / op / "twin_host.cpp", defines=defines))
    return folder


def make_twin(*, defines: tuple[str, ...] = (), **options: Any) -> Twin:
    """Return a twin that checks everything and trusts the compiler with no order."""
    return Twin(kernels(defines), **{"auto_sync": 0, **options})


def twins(vocab_sizes: Iterator[int], *, defines: tuple[str, ...] = ()) -> Iterator[Twin]:
    """Make a twin for each vocabulary: numbers of cores, tiles, ways to cut the batch in turn."""
    tiles, modes = (0, 64, 128, 320), ("auto", "split", "by request")
    for index, vocab in enumerate(vocab_sizes):
        cores = CORES[index % 4]
        tile = tiles[index // 4 % 4]
        yield make_twin(
            defines=defines,
            num_cores=cores,
            mode=modes[index // 16 % 3],
            tile=0 if vocab > 128 * tile else tile,
            nan_mode=index // 48 % 2,
        )


def bytes_read(twin: Twin) -> int:
    """Return what the last launch has read from global memory."""
    return sum(twin.stats.gm_read_bytes)


def bytes_by_core(twin: Twin) -> list[int]:
    """Return what each core of the last launch has read and written."""
    return list(itertools.islice(twin.stats.core_gm_bytes, twin.stats.num_cores))
