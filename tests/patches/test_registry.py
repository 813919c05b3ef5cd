"""Patches by version and by stage."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.specifiers import SpecifierSet
from vllm.platforms import current_platform

from tests.patches.cases import TakeOut, is_applied
from vllm_ascend_spec import versions
from vllm_ascend_spec.patches import registry
from vllm_ascend_spec.patches.patch import Patch

BY_NAME = {patch.name: patch for patch in registry.PATCHES}
OVERRIDES = [patch for patch in registry.PATCHES if patch.stage in {"classes", "npu_classes"}]
OF_NPU = [patch for patch in registry.PATCHES if patch.stage in {"npu_platform", "npu"}]
# Those of the NPU need vllm-ascend; tests/ascend applies them. Other versions have other names.
PATCHES = [
    patch
    for patch in registry.PATCHES
    if registry.STAGES[patch.stage] != "npu"
    and patch not in OVERRIDES
    and patch.reason_not_needed() is None
]
# Of each distribution, a version with every fault.
FAULTY = {"vllm": "0.30.0", "vllm-ascend": "0.30.0rc2"}
NO_MENDS = {"__init__", "first_draft_step", "patch", "patching", "registry"}


@pytest.fixture(scope="module", autouse=True)
def _platform() -> None:
    """Let vLLM ask for its platform now, when ours applies a stage, and not within a test."""
    current_platform.import_kernels()


def module_of(patch: Patch) -> ModuleType:
    return importlib.import_module(f"vllm_ascend_spec.patches.{patch.name}")


def pretend(monkeypatch: pytest.MonkeyPatch, distribution: str, version: str | None) -> None:
    """Let another version of one distribution be installed."""
    real = versions.installed_version
    monkeypatch.setattr(
        versions,
        "installed_version",
        lambda name: version if name == distribution else real(name),
    )


def outside(patch: Patch) -> str:
    """Return the first minor version after those that have the fault."""
    later = (f"0.{minor}.0" for minor in range(30, 99))
    return next(version for version in later if version not in patch.versions)


def test_every_module_has_a_record_and_the_other_way_round() -> None:
    folder = Path(str(registry.__file__)).parent
    files = {path.stem for path in folder.glob("*.py")}
    upstream = {f"upstream.{path.stem}" for path in folder.glob("upstream/*.py")}
    assert (files - NO_MENDS) | (upstream - {"upstream.__init__"}) == set(BY_NAME)
    assert len(BY_NAME) == len(registry.PATCHES)
    assert {patch.stage for patch in registry.PATCHES} == set(registry.STAGES)


@pytest.mark.parametrize("stage", sorted({patch.stage for patch in PATCHES}))
def test_stage_applies_its_patches_and_no_others(take_out: TakeOut, stage: str) -> None:
    for patch in PATCHES:
        take_out(module_of(patch))
    registry.apply(stage)
    registry.apply(stage)
    applied = {patch.name for patch in PATCHES if is_applied(module_of(patch))}
    assert applied == {patch.name for patch in PATCHES if patch.stage == stage}
    registry.revert(stage)
    assert not any(is_applied(module_of(patch)) for patch in PATCHES)


def test_a_stage_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError, match="cpu_kernels"):
        registry.apply("cpu_kernels")


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_out_of_its_range_a_patch_is_not_applied(
    patch: Patch, take_out: TakeOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = module_of(patch)
    take_out(module)
    # The others' versions are not pretended.
    monkeypatch.setattr(registry, "PATCHES", (patch,))
    pretend(monkeypatch, patch.distribution, outside(patch))
    registry.apply(patch.stage)
    assert not is_applied(module)
    monkeypatch.undo()
    registry.apply(patch.stage)
    assert is_applied(module)


def others(patch: Patch) -> list[str | None]:
    """Return versions of a patch's distribution that do not have the fault."""
    if patch.distribution == "vllm":
        return [outside(patch)]
    return ["0.30.0rc1", "0.30.0", "0.31.0", None, "of my own"]


@pytest.mark.parametrize(
    ("patch", "version"),
    [
        pytest.param(patch, version, id=f"{patch.name}-{version}")
        for patch in OF_NPU
        for version in others(patch)
    ],
)
def test_patches_of_an_npu_are_not_even_imported_for_another_version(
    patch: Patch, version: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "PATCHES", (patch,))
    pretend(monkeypatch, patch.distribution, version)
    monkeypatch.setitem(sys.modules, f"vllm_ascend_spec.patches.{patch.name}", None)
    registry.apply(patch.stage)  # would raise ImportError
    pretend(monkeypatch, patch.distribution, FAULTY[patch.distribution])
    with pytest.raises(ImportError):
        registry.apply(patch.stage)


@pytest.mark.parametrize("patch", OVERRIDES, ids=lambda patch: patch.name)
def test_overrides_of_another_version_are_empty(
    patch: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overridden() -> set[str]:
        monkeypatch.delitem(sys.modules, f"vllm_ascend_spec.patches.{patch.name}", raising=False)
        (base,) = (v for k, v in vars(module_of(patch)).items() if k.endswith("Override"))
        return {
            name
            for name, value in vars(base).items()
            if callable(value) or isinstance(value, classmethod)
        }

    pretend(monkeypatch, patch.distribution, FAULTY[patch.distribution])
    assert overridden()
    pretend(monkeypatch, patch.distribution, outside(patch))
    assert overridden() == set()


def patched(patch: ModuleType) -> list[object]:
    return [vars(owner)[name] for owner, name, _ in patch._patches._undo]


@pytest.mark.parametrize(
    "patch",
    [patch for patch in PATCHES if patch.stage != "command_line"],
    ids=lambda patch: patch.name,
)
def test_applying_twice_changes_nothing(take_out: TakeOut, patch: Patch) -> None:
    module = module_of(patch)
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
    patch = Patch(
        "upstream.allowed_token_mask", "vllm", SpecifierSet(versions_with_fault), "front_end"
    )
    assert patch.reason_not_needed() == reason


@pytest.mark.parametrize("device", [None, "cpu", "cuda", "npu"])
def test_report_has_the_patches_of_the_device(device: str | None) -> None:
    report = registry.report(device)
    others = {"cpu", "npu"} - {device}
    patches = [patch for patch in registry.PATCHES if registry.STAGES[patch.stage] not in others]
    assert list(report) == [patch.name for patch in patches]


def test_report_tells_the_fault_or_why_it_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "vllm", "0.31.0")
    report, name = registry.report("cpu"), "upstream.allowed_token_mask"
    assert report[name] == "not needed: vllm 0.31.0 is not <0.31,>=0.23.dev0"
    assert report["stop_string_tokens"].startswith("active: Answers that end at a stop string")
    pretend(monkeypatch, "vllm", "0.30.0")
    allowed = "active: allowed_token_ids of one request applied to another"
    assert registry.report("cpu")[name] == allowed
