"""What ``check`` says of a DeepSeek V4 for an NPU, whose MTP layer is called ``mtp.0``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.ascend.targets.compressed import CompressedShape, write
from vllm_ascend_spec.cli.main import main

COMMAND = ["check", "--light", "--device", "npu", "--json"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("v4") / "model", CompressedShape(), torch.bfloat16)


def spec(k: int) -> list[str]:
    return ["--speculative-config", json.dumps({"method": "mtp", "num_speculative_tokens": k})]


@pytest.mark.parametrize("k", [1, 3, 15])
def test_its_mtp_layer_is_taken(k: int, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, str(model), *spec(k)]) == 0, capsys.readouterr().err
    told = json.loads(capsys.readouterr().out)["speculation"]
    assert told["method"]["value"] == "mtp"


def test_more_drafts_than_a_request_may_have_rows_are_refused(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As vllm-ascend asserts of this attention (``AscendDSAMetadataBuilder``: 16 rows)."""
    assert main([*COMMAND, str(model), *spec(16)]) == 2
    said = capsys.readouterr().err
    assert "num_speculative_tokens=16: valid: a whole number from 1 to 15 on an Ascend NPU" in said


def test_a_checkpoint_without_the_layer_is_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text((model / "config.json").read_text())
    weights = load_file(model / "model.safetensors")
    left = {name: tensor for name, tensor in weights.items() if not name.startswith("mtp.")}
    assert len(left) < len(weights)
    save_file(left, tmp_path / "model.safetensors")
    assert main([*COMMAND, str(tmp_path), *spec(1)]) == 2
    assert "so its MTP layers were left out" in capsys.readouterr().err
