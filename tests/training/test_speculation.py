"""The target answers faster with a head, or with what needs none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.zoo import EVERY, SPECS
from vllm_ascend_spec.methods.registry import BUILT_IN
from vllm_ascend_spec.methods.suffix import checks
from vllm_ascend_spec.training.methods import METHODS
from vllm_ascend_spec.training.speculation import with_head, without_head


@pytest.mark.parametrize("method", METHODS)
def test_a_head_is_used_as_the_zoos_are(method: str) -> None:
    expected = EVERY[method]
    found = with_head(method, Path(expected["model"]), expected["num_speculative_tokens"])
    assert found == expected


def test_suffix_trees_are_taken_where_their_library_is(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(checks.LIBRARY)
    assert without_head()["method"] == "suffix"
    monkeypatch.setitem(sys.modules, checks.LIBRARY, None)
    assert without_head()["method"] == "ngram"


def test_what_needs_no_head_needs_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, checks.LIBRARY, None)
    assert set(without_head()) == set(SPECS["ngram"])
    assert without_head()["method"] in BUILT_IN
