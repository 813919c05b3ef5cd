"""The AscendC kernels, compiled for the emulator."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ops.emulator.library import Emulator
from tests.ops.emulator.build import ROOT, build

SOURCES = ROOT / "ops" / "ascendc"
OPS = ("verify_greedy", "verify_sample", "verify_seeded", "verify_tree", "grammar_mask")
CORES = (1, 3, 8, 40)
# A list this short holds few brackets, so that searches have to narrow them.
SHORT_LISTS = ("SPEC_LISTED=64",)


@cache
def kernels(defines: tuple[str, ...] = ()) -> Path:
    """Compile all kernels, with macros only verify_sample's; return the folder Emulator wants."""
    folder = Path(tempfile.mkdtemp(prefix="vllm-ascend-spec-kernels-"))
    for op in ("verify_sample",) if defines else OPS:
        (folder / f"{op}.so").symlink_to(build(SOURCES / op / "emulator_host.cpp", defines=defines))
    return folder


def make_emulator(*, defines: tuple[str, ...] = (), **options: Any) -> Emulator:
    """Return an emulator that checks everything and trusts the compiler with no order."""
    return Emulator(kernels(defines), **{"auto_sync": 0, **options})


def emulators(vocab_sizes: Iterator[int], *, defines: tuple[str, ...] = ()) -> Iterator[Emulator]:
    """Make an emulator per vocabulary: numbers of cores, tiles, ways to cut the batch in turn."""
    tiles, modes = (0, 64, 128, 320), ("auto", "split", "by request")
    for index, vocab in enumerate(vocab_sizes):
        cores = CORES[index % 4]
        tile = tiles[index // 4 % 4]
        yield make_emulator(
            defines=defines,
            num_cores=cores,
            mode=modes[index // 16 % 3],
            tile=0 if vocab > 128 * tile else tile,
            nan_mode=index // 48 % 2,
        )


def bytes_read(emulator: Emulator) -> int:
    """Return what the last launch has read from global memory."""
    return sum(emulator.stats.gm_read_bytes)


def bytes_by_core(emulator: Emulator) -> list[int]:
    """Return what each core of the last launch has read and written."""
    return list(itertools.islice(emulator.stats.core_gm_bytes, emulator.stats.num_cores))
