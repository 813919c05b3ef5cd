"""A multimodal target that needs torchvision, where there is none."""

from __future__ import annotations

import importlib.util
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import vllm  # noqa: F401  (nothing is asked of a process without it)

from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.devices import npu
from vllm_ascend_spec.errors import CheckpointError
from vllm_ascend_spec.hooks import multimodal

COMMAND = (
    "pip install --no-deps torchvision==0.28.0+cpu "
    "--extra-index-url https://download.pytorch.org/whl/cpu"
)
NEEDS_NONE = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is not None, reason="torchvision is installed"
)


def write(folder: Path, architecture: str, **more: Any) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], **more}))
    return str(folder)


@NEEDS_NONE
def test_the_line_has_what_to_do(tmp_path: Path) -> None:
    model = write(tmp_path / "vl", "Qwen2_5_VLForConditionalGeneration", vision_config={})
    with pytest.raises(CheckpointError) as raised:
        multimodal.check(model)
    (line,) = str(raised.value).splitlines()
    assert line.startswith("model='")
    assert line.endswith(f"Qwen2_5_VLForConditionalGeneration needs torchvision: {COMMAND}")


@NEEDS_NONE
def test_a_text_model_in_a_multimodal_models_module(tmp_path: Path) -> None:
    model = write(tmp_path / "qwen", "Qwen3_5ForCausalLM")
    with pytest.raises(CheckpointError, match="Qwen3_5ForCausalLM needs torchvision: pip install"):
        multimodal.check(model)
    with pytest.raises(ModuleNotFoundError, match="torchvision"):
        importlib.import_module("vllm.model_executor.models.qwen3_5")


@NEEDS_NONE
def test_vllm_does_not_load_it_either() -> None:
    """What is refused was seen to fail, and what is not refused can be imported."""
    importlib.import_module("vllm.model_executor.models.paligemma")

    with pytest.raises(ModuleNotFoundError, match="torchvision"):
        importlib.import_module("vllm.model_executor.models.qwen2_5_vl")


@NEEDS_NONE
@pytest.mark.parametrize(
    ("architecture", "part"),
    [
        ("PaliGemmaForConditionalGeneration", "vision_config"),  # which does without
        ("NoSuchModel", "vision_config"),
        ("Qwen2_5_VLForConditionalGeneration", "text_config"),  # nothing to see with
        ("LlamaForCausalLM", "text_config"),
    ],
)
def test_others_are_not_refused(architecture: str, part: str, tmp_path: Path) -> None:
    multimodal.check(write(tmp_path / "model", architecture, **{part: {}}))


def test_nothing_is_asked_of_names_and_other_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    multimodal.check("Qwen/Qwen2.5-VL-3B-Instruct")
    model = write(tmp_path / "vl", "Qwen2_5_VLForConditionalGeneration", vision_config={})
    monkeypatch.setattr(multimodal, "find_device", lambda: npu.DEVICE)
    multimodal.check(model)


@NEEDS_NONE
def test_an_engine_and_check_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from vllm.engine.arg_utils import EngineArgs

    from vllm_ascend_spec.cli.main import main

    config = json.loads((Path(TARGET) / "config.json").read_text())
    config |= {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "vision_config": {}}
    model = write(tmp_path / "vl", **{"architecture": config.pop("architectures")[0]}, **config)
    args = EngineArgs(model=TARGET, speculative_config=dict(SPECS["ngram"]))
    args.model = model
    with pytest.raises(CheckpointError, match="needs torchvision"):
        args.create_engine_config()
    assert main(["check", model, "--speculative-config", json.dumps(SPECS["ngram"])]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("vllm-ascend-spec check: error: model=")
    assert "needs torchvision" in line


@pytest.mark.parametrize(
    ("torch", "command"),
    [
        ("2.13.0+cpu", COMMAND),
        ("2.13.0", "pip install --no-deps torchvision==0.28.0"),
        ("2.10.0", "pip install --no-deps torchvision==0.25.0"),
        ("3.0.0", "pip install --no-deps torchvision"),
    ],
)
def test_the_build_is_that_of_torch(
    torch: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: torch)
    assert multimodal.remedy() == command
