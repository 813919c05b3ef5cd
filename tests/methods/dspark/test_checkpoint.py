"""Which DSpark heads can be used, in both formats, and what is said of others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.marks import unless
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.config.detect import detect
from vllm_ascend_spec.config.engine import EngineOptions
from vllm_ascend_spec.devices import cpu, npu
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks.preflight import resolve_engine
from vllm_ascend_spec.upstream import limits

pytestmark = unless(limits.WITHOUT_METHODS.get(("dspark", "vllm")))

HEAD = Path(SPECS["dspark"]["model"])
CONFIG: dict[str, Any] = json.loads((HEAD / "config.json").read_text())
LAYERS = CONFIG["target_layer_ids"]
OF_THE_HEAD = {name for name in CONFIG if name.startswith(("markov_", "confidence_", "enable_con"))}


def as_speculators(**changes: Any) -> dict[str, Any]:
    """Return the head's config as the speculators library would write it."""
    outside = {*OF_THE_HEAD, "mask_token_id", "block_size", "sample_from_anchor"}
    decoder = {name: CONFIG[name] for name in CONFIG.keys() - outside - {"target_layer_ids"}}
    return {
        "architectures": ["DSparkSpeculator"],
        "speculators_model_type": "dspark",
        "speculators_config": {"algorithm": "dspark", "verifier": {"name_or_path": TARGET}},
        "transformer_layer_config": decoder,
        "aux_hidden_state_layer_ids": [layer + 1 for layer in LAYERS],
        **{name: CONFIG[name] for name in outside},
        **changes,
    }


def written(folder: Path, config: dict[str, Any], **renamed: str | None) -> dict[str, Any]:
    """Write the head with another config; return a speculative config without a method."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    if not renamed:
        shutil.copy(HEAD / "model.safetensors", folder)
        return {"model": str(folder), "num_speculative_tokens": 7}
    tensors = load_file(HEAD / "model.safetensors")
    for old, new in renamed.items():
        tensor = tensors.pop(old)
        if new is not None:
            tensors[new] = tensor
    save_file(tensors, folder / "model.safetensors")
    return {"model": str(folder), "num_speculative_tokens": 7}


OLD = {**CONFIG, "architectures": ["DSparkDraftModel"]}
OLD["dflash_config"] = {name: OLD.pop(name) for name in ("mask_token_id", "target_layer_ids")}


@pytest.mark.parametrize(
    "config",
    [CONFIG, OLD, as_speculators(), as_speculators(sample_from_anchor=False)],
    ids=["Qwen3DSparkModel", "DSparkDraftModel", "speculators", "speculators, masks alone"],
)
def test_each_format_is_found_and_accepted(config: dict[str, Any], tmp_path: Path) -> None:
    spec = written(tmp_path / "head", config)
    assert detect(spec["model"]).method == "dspark"
    found = resolve_engine(TARGET, spec)
    assert found is not None
    assert (found.method, found.vllm_method, found.max_k) == ("dspark", "dspark", 7)


def test_its_tensors_tell_it_from_a_dflash_head(tmp_path: Path) -> None:
    folder = tmp_path / "my-dflash"
    written(folder, CONFIG)
    assert detect(str(folder)).method == "dspark"


MARKOV = "markov_head.markov_w1.weight"


@pytest.mark.parametrize(
    ("config", "renamed", "problem"),
    [
        ({"architectures": ["Gemma4DSparkModel"]}, {}, "valid: ['Qwen3DSparkModel']"),
        ({"markov_head_type": "gated"}, {}, "markov_head_type is 'gated'; valid: 'vanilla'"),
        ({"markov_rank": 0}, {}, "markov_rank is 0; valid"),
        ({"markov_rank": 16}, {}, MARKOV),
        ({"target_layer_ids": [0, 1, 40]}, {}, "valid: 0 to"),
        ({"mask_token_id": None}, {}, "names no mask token"),
        ({"sample_from_anchor": 1}, {}, "sample_from_anchor is 1; valid: true, false"),
        ({}, {MARKOV: None}, MARKOV),
        ({}, {MARKOV: "markov_head.gate.weight"}, MARKOV),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_loaded_is_refused(
    config: dict[str, Any], renamed: dict[str, str | None], problem: str, tmp_path: Path
) -> None:
    spec = written(tmp_path / "head", CONFIG | config, **renamed)
    with pytest.raises(ConfigError) as raised:
        resolve_engine(TARGET, {**spec, "method": "dspark"})
    assert raised.value.option == "speculative_config.model"
    assert problem in raised.value.problem


def test_without_a_confidence_head_it_can_be_used(tmp_path: Path) -> None:
    names = {"confidence_head.proj.weight": None, "confidence_head.proj.bias": None}
    spec = written(tmp_path / "head", CONFIG, **names)
    assert resolve_engine(TARGET, {**spec, "method": "dspark"}) is not None


@pytest.mark.parametrize("method", ["eagle", "eagle3", "draft_model", "dflash"])
def test_other_methods_name_the_right_one(method: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve_engine(TARGET, {**SPECS["dspark"], "method": method})
    assert "Spark" in raised.value.problem


def test_a_local_argmax_is_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        resolve_engine(TARGET, {**SPECS["dspark"], "use_local_argmax_reduction": True})
    assert raised.value.option == "speculative_config.use_local_argmax_reduction"


def test_vllms_loop_is_refused_and_vllm_ascends_is_not() -> None:
    section = {"ascend_spec": {"draft_loop": "stock"}}
    spec = SPECS["dspark"]
    with pytest.raises(ConfigError) as raised:
        resolve_engine(TARGET, spec, section, engine=EngineOptions(device=cpu.DEVICE))
    assert raised.value.option == "additional_config.ascend_spec.draft_loop"
    assert resolve_engine(TARGET, spec, section, engine=EngineOptions(device=npu.DEVICE))


@pytest.mark.parametrize(
    "config",
    [
        {**CONFIG, "architectures": ["DFlash2DraftModel"]},
        as_speculators(speculators_model_type="dflash2"),
    ],
    ids=["DFlash2DraftModel", "speculators"],
)
def test_dflash_2_is_refused_by_name(config: dict[str, Any], tmp_path: Path) -> None:
    """Without its selector it would draft as a first DFlash head, and worse."""
    spec = written(tmp_path / "dflash-2", config, **{MARKOV: "selector.weight"})
    for method in ({}, {"method": "dflash"}):
        with pytest.raises(ConfigError) as raised:
            resolve_engine(TARGET, {**spec, **method})
        assert raised.value.option == "speculative_config.model"
        assert "a DFlash 2 head" in raised.value.problem
