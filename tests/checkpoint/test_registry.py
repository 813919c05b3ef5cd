"""Every family of vLLM's registry under MTP, EAGLE and EAGLE-3, as ``check`` looks at it."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from vllm.model_executor.models.registry import _SPECULATIVE_DECODING_MODELS as REGISTRY

from tests.checkpoint.registry import BY_SPECULATORS, FAMILIES, LAYERS
from tests.config.checkpoints import LLAMA, write_checkpoint
from vllm_ascend_spec.cli.main import main

MODELS = "vllm.model_executor.models"
# Gemma 4's assistant is a model for itself, in no target.
ALONE = "Gemma4MTPModel"
OF_MTP = [name for name, family in FAMILIES.items() if family.method == "mtp"]
HEADS = [name for name, family in FAMILIES.items() if family.method != "mtp"]
OF_A_TARGET = ("model.embed_tokens", "model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj")


def test_every_family_of_the_registry_has_a_row() -> None:
    listed = {name for name in REGISTRY if "mtp" in name.lower() or "eagle" in name.lower()}
    assert set(FAMILIES) == listed


@pytest.mark.parametrize("name", FAMILIES)
def test_the_class_reads_these_names(name: str) -> None:
    """Its module, or one of the folder that the registry names, has them."""
    module = REGISTRY[name][0]
    found = importlib.util.find_spec(module if "." in module else f"{MODELS}.{module}")
    assert found is not None
    assert found.origin is not None
    path = Path(found.origin)
    files = path.parent.rglob("*.py") if path.name == "__init__.py" else [path]
    assert any(FAMILIES[name].said in file.read_text() for file in files)


def as_transformers_has_it(config: Mapping[str, Any]) -> Any:
    from transformers import PretrainedConfig

    values = {k: v for k, v in config.items() if k not in ("model_type", "text_config")}
    made = PretrainedConfig(**values)
    made.model_type = config.get("model_type", "")
    if "text_config" in config:
        made.text_config = as_transformers_has_it(config["text_config"])
        made.get_text_config = lambda *_, **__: made.text_config
    return made


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in BY_SPECULATORS])
def test_the_config_leads_to_the_class(name: str) -> None:
    """By vLLM's own functions."""
    from vllm.config.speculative import SpeculativeConfig
    from vllm.transformers_utils.configs.eagle import EAGLEConfig

    family = FAMILIES[name]
    found = SpeculativeConfig.hf_config_override(as_transformers_has_it(family.config))
    if family.method != "mtp":
        found = EAGLEConfig(found, method=family.method, model_type="eagle")
    assert found.architectures == [name]


def write(folder: Path, name: str, *, has_mtp: bool = True) -> Path:
    """Write a head, or a model with its MTP layers or without them."""
    family = FAMILIES[name]
    shapes = dict(family.shapes) or {f"{tensor}.weight": [1] for tensor in family.names.split()}
    if name in OF_MTP:
        shapes |= {} if family.shapes else {f"{tensor}.weight": [1] for tensor in OF_A_TARGET}
        config = {**dict.fromkeys(LLAMA), **family.config}
    else:
        config = dict(family.config)
    if not has_mtp:
        layers = config["num_hidden_layers"] or LAYERS
        shapes = {
            k: v for k, v in shapes.items() if "mtp" not in k and f"layers.{layers}." not in k
        }
    return write_checkpoint(folder, shapes, **config)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Of an architecture of which nothing is known."""
    other: dict[str, Any] = {"architectures": ["OtherForCausalLM"], "num_hidden_layers": 8}
    return write_checkpoint(tmp_path / "target", {"lm_head.weight": [1]}, **other)


def refusal(
    capsys: pytest.CaptureFixture[str], method: str, target: Path, draft: Path | None
) -> str:
    """Return what ``check`` says first; nothing where it is right. Light checks, on a GPU."""
    spec: dict[str, Any] = {"method": method, "num_speculative_tokens": 1}
    spec |= {} if draft is None else {"model": str(draft)}
    words = [str(target), "--speculative-config", json.dumps(spec)]
    status = main(["check", "--light", "--device", "cuda", *words])
    said = capsys.readouterr().err.splitlines()
    assert status == (2 if said else 0)
    return said[0] if said else ""


@pytest.mark.parametrize("name", FAMILIES)
def test_check_takes_what_vllm_loads(
    name: str, tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder of its own, and MTP layers in their target's, too."""
    family, folder = FAMILIES[name], write(tmp_path / "draft", name)
    said = [refusal(capsys, family.method, target, folder)]
    if name in OF_MTP and name != ALONE:
        said.append(refusal(capsys, "mtp", folder, None))
    for line in said:
        assert family.refused in line
        assert bool(line) == bool(family.refused)


@pytest.mark.parametrize("name", OF_MTP)
def test_mtp_layers_are_no_head(
    name: str, tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Negative control."""
    folder = write(tmp_path / "draft", name)
    for method in ("eagle", "eagle3"):
        said = refusal(capsys, method, target, folder)
        assert "is not an EAGLE" in said
        assert ("use method 'mtp'" in said) == (name != ALONE)


@pytest.mark.parametrize("name", HEADS)
def test_heads_are_no_mtp_layers(
    name: str, tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Negative control."""
    said = refusal(capsys, "mtp", target, write(tmp_path / "draft", name))
    assert f"use method '{FAMILIES[name].method}'" in said


IN_A_TARGET = [name for name in OF_MTP if not FAMILIES[name].refused and name != ALONE]


@pytest.mark.parametrize("name", IN_A_TARGET)
def test_mtp_layers_that_the_files_do_not_have(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As quantized checkpoints often are; vLLM says so when it has loaded the target."""
    said = refusal(capsys, "mtp", write(tmp_path / "model", name, has_mtp=False), None)
    assert "has no tensor model.layers." in said
    assert "use a checkpoint that has them, or another method" in said
