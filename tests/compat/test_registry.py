"""Mends by version and by stage."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.specifiers import SpecifierSet
from vllm.platforms import current_platform

from tests.compat.mends import TakeOut, is_applied
from vllm_ascend_spec import versions
from vllm_ascend_spec.compat import registry
from vllm_ascend_spec.compat.mend import Mend

BY_NAME = {mend.name: mend for mend in registry.MENDS}
OVERRIDES = [mend for mend in registry.MENDS if mend.stage in {"classes", "npu_classes"}]
OF_NPU = [mend for mend in registry.MENDS if mend.stage in {"npu_platform", "npu"}]
# Those of the NPU need vllm-ascend; tests/ascend applies them. Other versions have other names.
PATCHES = [
    mend
    for mend in registry.MENDS
    if registry.STAGES[mend.stage] != "npu"
    and mend not in OVERRIDES
    and mend.reason_not_needed() is None
]
# Of each distribution, a version with every fault.
FAULTY = {"vllm": "0.30.0", "vllm-ascend": "0.30.0rc2"}
NO_MENDS = {"__init__", "first_pass", "mend", "patching", "registry"}


@pytest.fixture(scope="module", autouse=True)
def _platform() -> None:
    """Let vLLM ask for its platform now, when ours applies a stage, and not within a test."""
    current_platform.import_kernels()


def module_of(mend: Mend) -> ModuleType:
    return importlib.import_module(f"vllm_ascend_spec.compat.{mend.name}")


def pretend(monkeypatch: pytest.MonkeyPatch, distribution: str, version: str | None) -> None:
    """Let another version of one distribution be installed."""
    real = versions.installed_version
    monkeypatch.setattr(
        versions,
        "installed_version",
        lambda name: version if name == distribution else real(name),
    )


def outside(mend: Mend) -> str:
    """Return the first minor version after those that have the fault."""
    later = (f"0.{minor}.0" for minor in range(30, 99))
    return next(version for version in later if version not in mend.versions)


def test_every_module_has_a_record_and_the_other_way_round() -> None:
    files = {path.stem for path in Path(str(registry.__file__)).parent.glob("*.py")}
    assert files - NO_MENDS == set(BY_NAME)
    assert len(BY_NAME) == len(registry.MENDS)
    assert {mend.stage for mend in registry.MENDS} == set(registry.STAGES)


@pytest.mark.parametrize("stage", sorted({mend.stage for mend in PATCHES}))
def test_stage_applies_its_mends_and_no_others(take_out: TakeOut, stage: str) -> None:
    for mend in PATCHES:
        take_out(module_of(mend))
    registry.apply(stage)
    registry.apply(stage)
    applied = {mend.name for mend in PATCHES if is_applied(module_of(mend))}
    assert applied == {mend.name for mend in PATCHES if mend.stage == stage}
    registry.revert(stage)
    assert not any(is_applied(module_of(mend)) for mend in PATCHES)


def test_a_stage_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError, match="cpu_kernels"):
        registry.apply("cpu_kernels")


@pytest.mark.parametrize("mend", PATCHES, ids=lambda mend: mend.name)
def test_out_of_its_range_a_mend_is_not_applied(
    mend: Mend, take_out: TakeOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = module_of(mend)
    take_out(module)
    # The others' versions are not pretended.
    monkeypatch.setattr(registry, "MENDS", (mend,))
    pretend(monkeypatch, mend.distribution, outside(mend))
    registry.apply(mend.stage)
    assert not is_applied(module)
    monkeypatch.undo()
    registry.apply(mend.stage)
    assert is_applied(module)


def others(mend: Mend) -> list[str | None]:
    """Return versions of a mend's distribution that do not have the fault."""
    if mend.distribution == "vllm":
        return [outside(mend)]
    return ["0.30.0rc1", "0.30.0", "0.31.0", None, "of my own"]


@pytest.mark.parametrize(
    ("mend", "version"),
    [
        pytest.param(mend, version, id=f"{mend.name}-{version}")
        for mend in OF_NPU
        for version in others(mend)
    ],
)
def test_mends_of_an_npu_are_not_even_imported_for_another_version(
    mend: Mend, version: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "MENDS", (mend,))
    pretend(monkeypatch, mend.distribution, version)
    monkeypatch.setitem(sys.modules, f"vllm_ascend_spec.compat.{mend.name}", None)
    registry.apply(mend.stage)  # would raise ImportError
    pretend(monkeypatch, mend.distribution, FAULTY[mend.distribution])
    with pytest.raises(ImportError):
        registry.apply(mend.stage)


@pytest.mark.parametrize("mend", OVERRIDES, ids=lambda mend: mend.name)
def test_overrides_of_another_version_are_empty(
    mend: Mend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overridden() -> set[str]:
        monkeypatch.delitem(sys.modules, f"vllm_ascend_spec.compat.{mend.name}", raising=False)
        (base,) = (v for k, v in vars(module_of(mend)).items() if k.endswith("Override"))
        return {
            name
            for name, value in vars(base).items()
            if callable(value) or isinstance(value, classmethod)
        }

    pretend(monkeypatch, mend.distribution, FAULTY[mend.distribution])
    assert overridden()
    pretend(monkeypatch, mend.distribution, outside(mend))
    assert overridden() == set()


def patched(mend: ModuleType) -> list[object]:
    return [vars(owner)[name] for owner, name, _ in mend._patches._undo]


@pytest.mark.parametrize(
    "mend", [mend for mend in PATCHES if mend.stage != "command_line"], ids=lambda mend: mend.name
)
def test_applying_twice_changes_nothing(take_out: TakeOut, mend: Mend) -> None:
    module = module_of(mend)
    take_out(module)
    module.apply()
    once = patched(module)
    module.apply()
    assert once
    assert list(map(id, patched(module))) == list(map(id, once))


@pytest.mark.parametrize(
    ("installed", "versions_with_fault", "reason"),
    [
        ("0.30.0", "==0.30.*", None),
        ("0.30.0+cpu", "==0.30.*", None),
        ("0.30.1rc1.dev3+g0123", "==0.30.*", None),
        ("0.30.0rc2", "==0.30.0rc2", None),
        ("0.30.0", "==0.30.0rc2", "vllm 0.30.0 is not ==0.30.0rc2"),
        ("0.31.0", "==0.30.*", "vllm 0.31.0 is not ==0.30.*"),
        ("dev", "==0.30.*", "vllm dev is not ==0.30.*"),
        (None, "==0.30.*", "vllm is not installed"),
    ],
)
def test_versions_are_compared_as_pep_440_does(
    installed: str | None,
    versions_with_fault: str,
    reason: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, "vllm", installed)
    mend = Mend("allowed_token_mask", "vllm", SpecifierSet(versions_with_fault), "front_end")
    assert mend.reason_not_needed() == reason


@pytest.mark.parametrize("device", [None, "cpu", "cuda", "npu"])
def test_report_has_the_mends_of_the_device(device: str | None) -> None:
    report = registry.report(device)
    others = {"cpu", "npu"} - {device}
    mends = [mend for mend in registry.MENDS if registry.STAGES[mend.stage] not in others]
    assert list(report) == [mend.name for mend in mends]


def test_report_tells_the_fault_or_why_it_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "vllm", "0.31.0")
    report = registry.report("cpu")
    assert report["allowed_token_mask"] == "not needed: vllm 0.31.0 is not <0.31,>=0.23.dev0"
    assert report["stop_string_tokens"].startswith("active: Answers that end at a stop string")
    pretend(monkeypatch, "vllm", "0.30.0")
    allowed = "active: allowed_token_ids of one request applied to another"
    assert registry.report("cpu")["allowed_token_mask"] == allowed
