"""Which targets give the states of their layers: vLLM's source is read as vLLM is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from vllm_ascend_spec.training import target_layers
from vllm_ascend_spec.training.target_layers import problem_of_layers

# Some have the base themselves, some by another model's class, some not.
ARCHITECTURES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "GptOssForCausalLM",
    "OlmoForCausalLM",
    "BloomForCausalLM",
    "OPTForCausalLM",
    "FalconForCausalLM",
    "Gemma3ForCausalLM",
)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_is_as_vllm_says(architecture: str) -> None:
    interfaces = pytest.importorskip("vllm.model_executor.models.interfaces")
    from vllm.model_executor.models.registry import ModelRegistry

    place = ModelRegistry.models[architecture]
    module = importlib.import_module(place.module_name)
    gives = interfaces.supports_eagle3(getattr(module, place.class_name))
    assert (problem_of_layers(architecture) is None) == gives


def test_what_is_not_found_is_left_to_the_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert problem_of_layers("NobodysForCausalLM") is None
    (tmp_path / "registry.py").write_text('MODELS = {"A": ("a", "A"), "B": ("gone", "B")}')
    (tmp_path / "a.py").write_text("from .gone import Base\nclass A(Base): ...")
    monkeypatch.setattr(target_layers, "MODELS", tmp_path)
    assert problem_of_layers("A") is None
    assert problem_of_layers("B") is None
    (tmp_path / "gone.py").write_text("class Base: ...\nclass B(SupportsEagle3): ...")
    assert problem_of_layers("A") == (
        "vLLM's A does not give the states of its layers (SupportsEagle3)"
    )
    assert problem_of_layers("B") is None
    monkeypatch.setattr(target_layers, "find_spec", lambda _: None)
    assert problem_of_layers("A") is None
