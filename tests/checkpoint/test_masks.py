"""The token of masks, and DFlash heads."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.config.checkpoints import edit_config, edit_tensors, zeros
from tests.config.draft_checks import check_checkpoint
from tests.zoo import ZOO
from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError
from vllm_ascend_spec.checkpoint.masks import check_mask
from vllm_ascend_spec.errors import CheckpointError

OPTION, VOCAB = "speculative_config.model", 4096


@pytest.mark.parametrize(
    "config",
    [
        {"pard_token": 7},
        {"mask_token_id": 0},
        {"ptd_token_id": VOCAB - 1},
        {"dflash_config": {"mask_token_id": 7}, "mask_token_id": "not looked at"},
    ],
)
def test_a_token_of_the_vocabulary_passes(config: dict[str, Any]) -> None:
    check_mask({"vocab_size": VOCAB, **config})


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({}, "names no mask token"),
        ({"mask_token_id": None}, "names no mask token"),
        ({"pard_token": VOCAB}, "pard_token is 4096; valid: a token, 0 to 4095"),
        ({"pard_token": -1}, "pard_token is -1"),
        ({"pard_token": True}, "pard_token is True"),
        ({"dflash_config": {"mask_token_id": "7"}}, "dflash_config.mask_token_id is '7'"),
        ({"dflash_config": 7}, "dflash_config is 7; valid: an object"),
    ],
)
def test_anything_else_is_refused(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidCheckpointError, match=problem):
        check_mask({"vocab_size": VOCAB, **config})


def check(folder: Path, method: str = "dflash", *, in_one_pass: bool = True) -> None:
    check_checkpoint(method, Draft(OPTION, "x", folder, ZOO / "target", in_one_pass=in_one_pass))


def test_checkpoints_of_the_zoo_pass() -> None:
    check(ZOO / "dflash")
    check(ZOO / "pard", "draft_model")
    # One that was trained for masks drafts in a loop, too.
    check(ZOO / "pard", "draft_model", in_one_pass=False)


@pytest.fixture
def head(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ZOO / "dflash", tmp_path / "head"))


def layers(*numbers: Any) -> dict[str, Any]:
    return {"dflash_config": {"mask_token_id": 7, "target_layer_ids": list(numbers)}}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"architectures": ["DFlash3DraftModel"]}, "valid: ['DFlashDraftModel']"),
        (layers(2, 6, 12), "valid: 0 to 11, the target's layers"),
        (layers(6, 2, 11), "ascending, counted from 0"),
        (layers(), "ascending, counted from 0"),
        (layers(2, 11), "fc.weight"),
        ({"target_hidden_size": 64}, "the target's hidden_size is 256"),
        ({"vocab_size": 64}, "its vocab_size is 64, the target's is 4096"),
        ({"num_hidden_layers": 3}, "has 2 layers"),
        ({"draft_vocab_size": 2048}, "has no tensor d2t"),
    ],
)
def test_heads_for_something_else_are_refused(
    head: Path, config: dict[str, Any], problem: str
) -> None:
    edit_config(head, **config)
    with pytest.raises(CheckpointError) as raised:
        check(head)
    assert problem in raised.value.problem


@pytest.mark.parametrize("name", ["norm.weight", "layers.1.self_attn.k_norm.weight", "fc.weight"])
def test_a_missing_tensor_is_named(head: Path, name: str) -> None:
    edit_tensors(head, lambda entries: entries.pop(name) and None)
    with pytest.raises(CheckpointError) as raised:
        check(head)
    assert name in raised.value.problem


def test_a_foreign_tensor_is_named(head: Path) -> None:
    edit_tensors(head, lambda entries: entries.update({"mask_hidden": zeros([1, 1, 256])}))
    with pytest.raises(CheckpointError, match="mask_hidden"):
        check(head)
