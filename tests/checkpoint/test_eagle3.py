"""EAGLE-3 heads: what vLLM loads passes, and each damage has its own message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.variants import QUANTIZED, quantize
from tests.config.checkpoints import (
    HIDDEN,
    LLAMA,
    WEIGHTS,
    eagle3_shapes,
    edit_config,
    to_speculators,
    write_checkpoint,
    write_eagle,
    write_eagle3,
    write_tensors,
    zeros,
)
from tests.config.damage import DAMAGE, without
from tests.config.draft_checks import check_checkpoint
from tests.config.eagle3_forms import DAMAGED, IDS, OWN, PASSING, TARGET_LAYERS, eagle_config, wide
from vllm_ascend_spec.checkpoint.config_json import read_config
from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.errors import CheckpointError

OPTION = "speculative_config.model"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "target", num_hidden_layers=TARGET_LAYERS)


def check(folder: Path, target: Path | None, method: str = "eagle3") -> None:
    check_checkpoint(method, Draft(OPTION, "x", folder, target))


def refusal(folder: Path, target: Path | None, method: str = "eagle3") -> str:
    """Return the message of a check, which has to be one short line behind option and value."""
    with pytest.raises(CheckpointError) as raised:
        check(folder, target, method)
    assert len(raised.value.problem) <= 175
    assert raised.value.problem.isprintable()
    return raised.value.problem


# Settings that the speculators library's format does not have.
PLAIN_ONLY = ("the last state alone", "five states", "another architecture")


@pytest.mark.parametrize(
    ("name", "layout"),
    [(name, "plain") for name in PASSING]
    + [(name, "speculators") for name in PASSING if name not in PLAIN_ONLY],
)
def test_variant_passes(name: str, layout: str, tmp_path: Path, target: Path) -> None:
    config, change = PASSING[name]
    folder = write_eagle3(tmp_path / "head", **config)
    change(folder)
    if layout == "speculators":
        to_speculators(folder, str(target))
    check(folder, target)


def test_head_of_qwen3_passes(tmp_path: Path, target: Path) -> None:
    settings = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 2}
    shapes = eagle3_shapes({**LLAMA, **settings, "num_aux_hidden_states": 4})
    for norm in ("q_norm", "k_norm"):
        shapes[f"layers.0.self_attn.{norm}.weight"] = [2]
    folder = write_checkpoint(tmp_path / "head", shapes, **settings, **{IDS: [1, 2, 3, 4]})
    check(folder, target)
    with pytest.raises(CheckpointError, match="vllm-ascend does not run"):
        check_checkpoint("eagle3", Draft(OPTION, "x", folder, target, family="ascend"))
    check_checkpoint("eagle3", Draft(OPTION, "x", folder, target, family="vllm"))
    del shapes["layers.0.self_attn.q_norm.weight"]
    write_tensors(folder / WEIGHTS, {name: zeros(shape) for name, shape in shapes.items()})
    assert "no tensor layers.0.self_attn.q_norm.weight" in refusal(folder, target)


@pytest.mark.parametrize("kind", QUANTIZED)
def test_quantized_head_passes(kind: str, tmp_path: Path, target: Path) -> None:
    folder = write_eagle3(tmp_path / "head")
    quantize(kind)(folder)
    check(folder, target)


def test_wide_states_pass_where_the_target_has_them(tmp_path: Path) -> None:
    target = write_checkpoint(
        tmp_path / "wide", num_hidden_layers=TARGET_LAYERS, hidden_size=2 * HIDDEN
    )
    folder = write_eagle3(tmp_path / "head")
    assert "hidden_size" in refusal(folder, target)
    wide(folder)
    check(folder, target)
    without("embed_tokens.weight")(folder)
    assert "no tensor embed_tokens.weight" in refusal(folder, target)


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_of_any_draft_is_named(name: str, tmp_path: Path) -> None:
    damage, words = DAMAGE[name]
    folder = write_eagle3(tmp_path / "head")
    damage(folder)
    message = refusal(folder, None)
    assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named(name: str, tmp_path: Path, target: Path) -> None:
    config, damage, words = DAMAGED[name]
    folder = write_eagle3(tmp_path / "head", **config)
    damage(folder)
    message = refusal(folder, target)
    assert [word for word in words if word not in message] == [], message


def test_default_layers_have_to_be_layers_of_the_target(tmp_path: Path) -> None:
    folder = write_eagle3(tmp_path / "head")
    for layers, fits in ((12, True), (7, True), (5, False), (2, False)):
        target = write_checkpoint(tmp_path / f"target{layers}", num_hidden_layers=layers)
        if fits:
            check(folder, target)
        else:
            assert f"target of {layers} layers" in refusal(folder, target)


def test_heads_of_another_kind_are_told_apart(tmp_path: Path, target: Path) -> None:
    first, third = write_eagle(tmp_path / "first"), write_eagle3(tmp_path / "third")
    assert "first EAGLE" in refusal(first, target)
    assert "'eagle'" in refusal(first, target)
    assert "'eagle3'" in refusal(third, target, "eagle")
    assert "'eagle3'" in refusal(third, target, "draft_model")
    assert "'draft_model'" in refusal(write_checkpoint(tmp_path / "whole"), target)


def test_flattened_config_is_what_vllm_builds(tmp_path: Path) -> None:
    from vllm.transformers_utils.configs.speculators import SpeculatorsConfig

    settings = {"fc_norm": True, "norm_output": True, "target_hidden_size": HIDDEN, **OWN}
    folder = write_eagle3(tmp_path / "head", **settings)
    eagle_config(**{IDS: [1, 2, 3]})(folder)
    to_speculators(folder, "x")
    given = json.loads((folder / "config.json").read_text())
    ours = read_config(folder)
    assert ours == SpeculatorsConfig.extract_transformers_pre_trained_config(given)
    assert {key: ours[key] for key in settings} == settings


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"speculators_model_type": "other"}, ["speculators_model_type", "'other'", "'eagle3'"]),
        ({"speculators_model_type": None}, ["speculators_model_type", "None"]),
        ({"transformer_layer_config": 3}, ["transformer_layer_config", "3", "object"]),
        ({"transformer_layer_config": {"model_type": "gpt2"}}, ["model_type", "'gpt2'", "'llama'"]),
    ],
)
def test_damage_of_a_speculators_config_is_named(
    changes: dict[str, Any], words: list[str], tmp_path: Path, target: Path
) -> None:
    folder = to_speculators(write_eagle3(tmp_path / "head"), str(target))
    edit_config(folder, **changes)
    message = refusal(folder, target)
    assert [word for word in words if word not in message] == [], message
