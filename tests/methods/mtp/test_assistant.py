"""Gemma 4's assistant, which is a model of its own, is checked before anything is loaded."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.config.checkpoints import edit_config, edit_tensors
from tests.zoo import ASSISTANT, GEMMA4, TARGET
from vllm_ascend_spec.config.detect import detect
from vllm_ascend_spec.errors import CheckpointError
from vllm_ascend_spec.hooks.preflight import resolve_engine

Change = Callable[[Path], object]


def refusal(target: str, **spec: Any) -> str:
    with pytest.raises(CheckpointError) as raised:
        resolve_engine(target, {**ASSISTANT, **spec})
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("method", ["mtp", "gemma4_mtp"])
def test_the_zoos_passes(method: str) -> None:
    assert resolve_engine(GEMMA4, {**ASSISTANT, "method": method}).method == "mtp"


def test_it_is_detected() -> None:
    found = detect(ASSISTANT["model"])
    assert found.method == "mtp"
    assert "'gemma4_assistant'" in found.source


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda folder: edit_config(folder, backbone_hidden_size=512),
            "its backbone_hidden_size is 512, the target's hidden_size is 256",
        ),
        (
            lambda folder: edit_tensors(folder, lambda found: found.pop("pre_projection.weight")),
            "has no tensor pre_projection.weight",
        ),
    ],
)
def test_what_does_not_fit_is_named(change: Change, words: str, tmp_path: Path) -> None:
    folder = tmp_path / "assistant"
    shutil.copytree(ASSISTANT["model"], folder)
    change(folder)
    assert words in refusal(GEMMA4, model=str(folder))


def test_it_drafts_for_no_other_target(tmp_path: Path) -> None:
    folder = tmp_path / "assistant"
    shutil.copytree(ASSISTANT["model"], folder)
    edit_config(folder, backbone_hidden_size=64)
    assert "the target's hidden_size" in refusal(TARGET, model=str(folder))


def test_it_is_no_target() -> None:
    with pytest.raises(CheckpointError, match="drafts for a Gemma 4"):
        resolve_engine(ASSISTANT["model"], {"method": "mtp", "num_speculative_tokens": 3})
