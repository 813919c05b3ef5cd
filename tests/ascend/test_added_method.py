"""A method of somebody else's drafts on the NPU, too, with no file of ours touched.

By day tests/e2e/test_added_method.py installs it, and custom_class has such drafts on the NPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ascend.environment import NPU
from tests.ascend.matrix import ENGINE, MODES
from tests.engines import assert_same
from tests.methods.added import answers_elsewhere
from vllm_ascend_spec.cli import env


@pytest.mark.nightly
def test_it_drafts_losslessly(tmp_path: Path) -> None:
    environment = {**NPU, "VLLM_PLUGINS": str(env.plugins({}))}
    found = answers_elsewhere(tmp_path, {**ENGINE, **MODES["eager"]}, environment)
    assert_same(found["with"], found["without"])
    assert found["accepted"] > 10
