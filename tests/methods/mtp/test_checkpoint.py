"""A model's MTP layers are checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.config.checkpoints import edit_config, edit_tensors, write_checkpoint, zeros
from tests.methods.mtp.models import DEEPSEEK, DEEPSEEK_EXPERTS, MIMO, shapes_of
from tests.zoo import SPECS, TARGET, ZOO
from vllm_ascend_spec.errors import CheckpointError
from vllm_ascend_spec.hooks.preflight import resolve_engine

MODELS = {"MiMo": MIMO, "DeepSeek": DEEPSEEK, "DeepSeek with experts": DEEPSEEK_EXPERTS}
LAYERS = "num_nextn_predict_layers"
Change = Callable[[Path], object]


def write(tmp_path: Path, config: dict[str, Any]) -> Path:
    return write_checkpoint(tmp_path / "model", shapes_of(config), **config)


def check(target: Path | str, **spec: Any) -> None:
    resolve_engine(str(target), {"method": "mtp", "num_speculative_tokens": 3, **spec})


def refusal(target: Path | str, **spec: Any) -> str:
    with pytest.raises(CheckpointError) as raised:
        check(target, **spec)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_healthy_models_pass(name: str, layers: int, tmp_path: Path) -> None:
    folder = write(tmp_path, {**MODELS[name], LAYERS: layers})
    check(folder)
    check(folder, model=str(folder))


@pytest.mark.parametrize("model", ["target-mimo", "target-deepseek", "target-deepseek-v32"])
def test_the_zoos_pass(model: str) -> None:
    check(ZOO / model)


def drop(name: str) -> Change:
    return lambda folder: edit_tensors(folder, lambda entries: entries.pop(name))


def add(name: str) -> Change:
    extra = {name: zeros([2])}
    return lambda folder: edit_tensors(folder, lambda entries: entries.update(extra))


def widen(name: str) -> Change:
    extra = {name: zeros([3, 3])}
    return lambda folder: edit_tensors(folder, lambda entries: entries.update(extra))


def settings(**values: Any) -> Change:
    return lambda folder: edit_config(folder, **values)


DAMAGES: dict[str, tuple[str, Change, str]] = {
    "no count": ("MiMo", settings(num_nextn_predict_layers=None), "has no MTP layers"),
    "none": ("DeepSeek", settings(num_nextn_predict_layers=0), "num_nextn_predict_layers"),
    "a layer too few": ("MiMo", settings(num_nextn_predict_layers=2), "has 1 layer (model.mtp_"),
    "no layer": ("DeepSeek", settings(num_hidden_layers=2), "has no tensor model.layers.2.*"),
    "a tensor missing": ("MiMo", drop("model.mtp_layers.0.input_proj.weight"), "has no tensor"),
    "one of attention": (
        "DeepSeek",
        drop("model.layers.1.self_attn.kv_b_proj.weight"),
        "has no tensor model.layers.1.self_attn.kv_b_proj.weight",
    ),
    "an expert missing": (
        "DeepSeek with experts",
        drop("model.layers.1.mlp.experts.1.up_proj.weight"),
        "has no tensor model.layers.1.mlp.experts.1.up_proj.weight",
    ),
    "a foreign tensor": ("DeepSeek", add("model.layers.1.fusion.weight"), "is unexpected"),
    "a foreign one of MiMo": ("MiMo", add("model.mtp_layers.0.enorm.weight"), "is unexpected"),
    "another width": ("MiMo", widen("model.mtp_layers.0.input_proj.weight"), "[3, 3]; valid:"),
    "another rank": ("DeepSeek", settings(kv_lora_rank=7), "from kv_lora_rank"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_message(damage: str, tmp_path: Path) -> None:
    name, change, message = DAMAGES[damage]
    folder = write(tmp_path, MODELS[name])
    change(folder)
    found = refusal(folder)
    assert found.startswith(f"model={str(folder)!r}")
    assert message in found


def test_a_model_without_such_layers() -> None:
    assert "has no MTP layers, as no LlamaForCausalLM has" in refusal(TARGET)


def test_a_head_is_named_by_its_method() -> None:
    eagle = SPECS["eagle"]["model"]
    found = refusal(TARGET, model=eagle)
    assert found.startswith("speculative_config.model=")
    assert "use method 'eagle'" in found


def test_layers_of_another_model(tmp_path: Path) -> None:
    folder = write(tmp_path, MIMO)
    assert "its vocab_size is 16, the target's is 4096" in refusal(TARGET, model=str(folder))


def test_models_with_a_loop_of_their_own_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, {**MIMO, "model_type": "step3p5"})
    assert "model_type 'step3p5'" in refusal(folder)


def test_architectures_without_a_table_are_left_to_vllm(tmp_path: Path) -> None:
    check(write(tmp_path, {**MIMO, "architectures": ["Glm4MoeForCausalLM"]}))
