"""Every kernel that the host code launches must lower for Ascend, and failures must be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ops.triton_ascend.backend import KERNELS
from tests.ops.triton_ascend.environment import requires_lowering
from tests.ops.triton_ascend.lowering import FORMS, LoweringError, Variant, lower, result

pytestmark = requires_lowering

CONTROLS = "tests.ops.triton_ascend.controls"


def test_every_launched_kernel_lowers(launched: dict[Variant, Path]) -> None:
    failed = {str(v): (p / "error.txt").read_text() for v, p in launched.items() if not _done(p)}
    assert not failed


def _done(folder: Path) -> bool:
    return all((folder / form).exists() for form in FORMS) and not (folder / "error.txt").exists()


def test_every_kernel_is_launched(launched: dict[Variant, Path]) -> None:
    functions = {variant.function for variant in launched}
    assert functions == {name for names in KERNELS.values() for name in names}


def test_the_lowered_kernel_is_for_ascend_and_has_all_arguments(
    launched: dict[Variant, Path],
) -> None:
    for variant, folder in launched.items():
        text = result(folder, "linalg.mlir")
        assert f"func.func @{variant.function}(" in text
        assert 'mix_mode = "aiv"' in text  # a kernel for vector cores
        # Workspace and lock, then ours, then sizes and indices of the grid.
        assert text.partition(" attributes ")[0].count("%arg") == 2 + len(variant.signature) + 6


def test_a_kernel_that_does_not_lower_is_reported_with_a_hint(folder: Path) -> None:
    signature = (("out", "*fp32"), ("size", "i32"))
    variant = Variant(CONTROLS, "branches", signature, ())
    place = lower([variant], folder)[variant]
    with pytest.raises(LoweringError, match=r"triton-adapter-opt failed(.|\n)*has branches"):
        result(place, "linalg.mlir")


def test_an_error_of_triton_is_reported(folder: Path) -> None:
    signature = (("x", "i32"), ("out", "*fp32"), ("size", "i32"), ("stride", "i32"))
    variant = Variant(CONTROLS, "sound", signature, (("BLOCK", 64),))
    place = lower([variant], folder)[variant]
    with pytest.raises(LoweringError, match="CompilationError"):
        result(place, "linalg.mlir")
