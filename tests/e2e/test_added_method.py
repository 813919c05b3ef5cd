"""A method of somebody else's drafts on the CPU; see tests/ascend for the NPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engines import ENGINE, assert_same
from tests.methods.added import NAME, SPEC, answers_elsewhere
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("site_packages")
    return answers_elsewhere(folder, ENGINE, {"VLLM_ASCEND_SPEC_DEVICE": "cpu"})


def test_output_is_the_targets(found: Any) -> None:
    assert_same(found["with"], found["without"])


def test_its_drafts_are_accepted(found: Any) -> None:
    assert found["accepted"] > 10


def test_without_its_package_the_method_is_unknown() -> None:
    with pytest.raises(ConfigError, match=f"{NAME}.*not supported"):
        resolve_engine(ENGINE["model"], dict(SPEC))
