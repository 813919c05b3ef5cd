"""The tables of tensors against transformers' own modules, and architectures without a table."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.config.checkpoints import LLAMA, eagle_shapes, layer_shapes, write_checkpoint
from tests.config.draft_checks import check_checkpoint
from vllm_ascend_spec.checkpoint.architectures import eagle_llama, llama
from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError
from vllm_ascend_spec.checkpoint.tensors import Table
from vllm_ascend_spec.errors import CheckpointError

SMALL: dict[str, Any] = {
    **LLAMA,
    "hidden_size": 12,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "num_hidden_layers": 2,
    "tie_word_embeddings": False,
}
CLASSES = {
    "LlamaForCausalLM": ("llama", [{}, {"attention_bias": True}, {"mlp_bias": True}]),
    "MistralForCausalLM": ("mistral", [{}]),
    "Qwen2ForCausalLM": ("qwen2", [{}]),
    "Qwen3ForCausalLM": ("qwen3", [{}]),
}
CHANGES: list[dict[str, Any]] = [{}, {"head_dim": 8}, {"num_key_value_heads": 6}]


def shapes_of(table: Table) -> dict[str, list[int]]:
    shapes = {name: list(shape.sizes) for name, shape in table.outside.items()}
    for number in range(table.layers):
        for name, shape in table.layer(number).items():
            shapes[f"{table.stack}{number}.{name}"] = list(shape.sizes)
    return shapes


def transformers_shapes(model_type: str, config: dict[str, Any]) -> dict[str, list[int]]:
    from transformers import AutoConfig, AutoModelForCausalLM

    known = {key: value for key, value in config.items() if key != "model_type"}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **known))
    return {name: list(tensor.shape) for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        (name, {**own, **change})
        for name, (_, configs) in CLASSES.items()
        for own, change in itertools.product(configs, CHANGES)
        # transformers has no head_dim in Qwen2's config; vLLM does not look at one.
        if not (name == "Qwen2ForCausalLM" and "head_dim" in change)
    ],
    ids=str,
)
def test_table_is_what_transformers_saves(architecture: str, config: dict[str, Any]) -> None:
    model_type = CLASSES[architecture][0]
    settings = {**SMALL, "model_type": model_type, **config}
    if architecture == "Qwen3ForCausalLM":
        settings.setdefault("head_dim", 2)
    table = llama.table_of(architecture, settings)
    assert table is not None
    assert shapes_of(table) == transformers_shapes(model_type, settings)


@pytest.mark.parametrize("value", ["absent", None])
@pytest.mark.parametrize("name", ["num_key_value_heads", "head_dim"])
@pytest.mark.parametrize("architecture", CLASSES)
def test_defaults_are_those_of_transformers(architecture: str, name: str, value: Any) -> None:
    """Of what a config may leave out; null is refused where transformers refuses it."""
    from huggingface_hub.errors import StrictDataclassFieldValidationError
    from transformers import AutoConfig

    model_type, relative = CLASSES[architecture][0], llama.VARIANTS[architecture]
    settings = {**SMALL, "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128}
    settings.update({"num_key_value_heads": 8, name: value})
    if value == "absent":
        del settings[name]
    known = {key: value for key, value in settings.items() if key != "model_type"}
    try:
        theirs = AutoConfig.for_model(model_type, **known)
    except StrictDataclassFieldValidationError:
        with pytest.raises(InvalidCheckpointError, match=f"{name} is None"):
            llama.sizes_of(settings, relative)
        return
    sizes = llama.sizes_of(settings, relative)
    assert sizes.kv_heads == theirs.num_key_value_heads
    assert sizes.head_dim == (getattr(theirs, "head_dim", None) or 128)


def test_head_dim_of_qwen2_is_not_looked_at() -> None:
    tables = [llama.table_of("Qwen2ForCausalLM", {**SMALL, **new}) for new in ({}, {"head_dim": 8})]
    assert tables[0] is not None
    assert tables[1] is not None
    assert shapes_of(tables[0]) == shapes_of(tables[1])


def test_model_types_have_the_architectures_of_vllm() -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES
    from vllm import ModelRegistry

    assert {name: NAMES[name] for name in llama.BY_MODEL_TYPE} == llama.BY_MODEL_TYPE
    supported = ModelRegistry.get_supported_archs()
    assert set(llama.VARIANTS) <= set(supported)
    assert "EagleLlamaForCausalLM" in supported


def test_eagle_head_has_the_tensors_that_vllm_loads() -> None:
    table = eagle_llama.table_of("LlamaForCausalLM", SMALL)
    assert table is not None
    shapes = shapes_of(table) | {n: list(shape.sizes) for n, shape in table.optional.items()}
    assert shapes == eagle_shapes(SMALL)


OTHER = {"architectures": ["OtherForCausalLM"], "model_type": "other", "num_hidden_layers": 4}


def other(stack: str = "model.layers.") -> dict[str, list[int]]:
    """Return the tensors of a model that no table knows."""
    shapes = {"model.embed_tokens.weight": [16, 4]}
    for layer, (name, shape) in itertools.product(range(4), layer_shapes(LLAMA).items()):
        shapes[f"{stack}{layer}.{name}"] = shape
    return shapes


def mixture(dense: int) -> dict[str, list[int]]:
    """Return those of a mixture of experts whose first layers are dense."""
    shapes = {}
    for name, shape in other().items():
        layer = int(name.split(".")[2]) if ".layers." in name else 0
        if ".mlp." in name and layer >= dense:
            shapes.update({name.replace(".mlp.", f".mlp.experts.{n}."): shape for n in range(2)})
            shapes[f"model.layers.{layer}.mlp.gate.weight"] = [2, 4]
        else:
            shapes[name] = shape
    return shapes


def lacking(*names: str) -> dict[str, list[int]]:
    return {name: shape for name, shape in other().items() if not name.startswith(names)}


UNKNOWN: dict[str, tuple[dict[str, list[int]], dict[str, Any]]] = {
    "plain": (other(), {}),
    "other stack": (other("transformer.h."), {}),
    "names of its own": ({"blocks.0.w": [2], "blocks.7.w": [2]}, {}),
    "mixture of experts": (mixture(0), {}),
    "dense first layer": (mixture(1), {}),
    "no norm in the first layer": (lacking("model.layers.0.input_layernorm"), {}),
    "two kinds of layers": (
        lacking("model.layers.1.self_attn", "model.layers.3.self_attn"),
        {},
    ),
    "layers for another use": (
        other() | {f"model.layers.4.{n}": s for n, s in layer_shapes(LLAMA).items()},
        {},
    ),
    "empty layers": (lacking("model.layers.2."), {"block_configs": [{}]}),
    "multimodal": (
        other("language_model.model.layers."),
        {"text_config": {"num_hidden_layers": 4, "vocab_size": 16, "hidden_size": 4}},
    ),
    "no number of layers": (other(), {"num_hidden_layers": None}),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_architecture_passes(tmp_path: Path, name: str) -> None:
    shapes, config = UNKNOWN[name]
    folder = write_checkpoint(tmp_path / "draft", shapes, **{**OTHER, **config})
    check_checkpoint("draft_model", Draft("o", "x", folder))


@pytest.mark.parametrize("name", ["EagleMistralForCausalLM", "EagleDeepSeekMTPModel"])
def test_eagle_head_of_an_unknown_architecture_passes(tmp_path: Path, name: str) -> None:
    shapes = {"model.fc.weight": [4, 8], "model.layers.0.mlp.up_proj.weight": [6, 4]}
    folder = write_checkpoint(tmp_path / "draft", shapes, architectures=[name])
    check_checkpoint("eagle", Draft("o", "x", folder))


@pytest.mark.parametrize(
    ("shapes", "config", "words"),
    [
        (lacking("model.layers.3."), {}, r"no tensor model\.layers\.3\.\*; num_hidden_layers .* 4"),
        (lacking("model.layers.1."), {}, r"no tensor model\.layers\.1\.\*"),
        (lacking("model.layers.2.mlp.up"), {}, r"no tensor model\.layers\.2\.mlp\.up_proj\.weight"),
        (other(), {"vocab_size": 17}, r"embed_tokens\.weight .* \[16, 4\]; valid: \[17, 4\]"),
        (other(), {"hidden_size": 8}, r"embed_tokens\.weight .* \[16, 4\]; valid: \[16, 8\]"),
        (other(), {"num_hidden_layers": 10**30}, r"no tensor model\.layers\.4\.\*"),
        (other(), {"num_hidden_layers": -1}, r"num_hidden_layers in config\.json is -1"),
    ],
)
def test_unknown_architecture_that_contradicts_itself_is_refused(
    tmp_path: Path, shapes: dict[str, list[int]], config: dict[str, Any], words: str
) -> None:
    folder = write_checkpoint(tmp_path / "draft", shapes, **{**OTHER, **config})
    with pytest.raises(CheckpointError, match=words):
        check_checkpoint("draft_model", Draft("o", "x", folder))
