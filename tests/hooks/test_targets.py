"""Targets and drafts that vLLM cannot run: ``check`` and an engine's start say the same line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import vllm

from tests.checkpoint.registry import LAYERS, model
from tests.config.checkpoints import write_checkpoint
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.checkpoint.recurrent import ARCHITECTURES, with_state
from vllm_ascend_spec.cli.main import main
from vllm_ascend_spec.devices import cpu
from vllm_ascend_spec.errors import ConfigError

CLASS = re.compile(r"^class (\w+)\(([^)]*)\):", re.MULTILINE)
NGRAM, DRAFT = SPECS["ngram"], SPECS["draft_model"]
MTP = {"method": "mtp", "num_speculative_tokens": 1}
STATE = "whose layers keep a state: vLLM stops, or its answers differ"


def write(folder: Path, architecture: str, **config: Any) -> str:
    """Write a model without MTP layers."""
    shapes = {f"model.layers.{n}.mlp.up_proj.weight": [1] for n in range(LAYERS)}
    return str(write_checkpoint(folder, shapes, **{**model("qwen3_next", architecture), **config}))


CASES: dict[str, Callable[[Path], tuple[str, Any, str]]] = {
    "Mamba 2": lambda f: (write(f, "GraniteMoeHybridForCausalLM"), NGRAM, STATE),
    "short convolutions": lambda f: (write(f, "Lfm2ForCausalLM"), SPECS["suffix"], STATE),
    "a draft with a state": lambda f: (
        TARGET,
        {**DRAFT, "model": write(f, "GraniteMoeHybridForCausalLM", vocab_size=4096)},
        "whose layers keep a state, but vLLM 0.30 drafts only with attention layers",
    ),
    "no tensors of MTP layers": lambda f: (
        write(f, "Glm4MoeForCausalLM", model_type="glm4_moe"),
        MTP,
        "has no tensor model.layers.2.* and none called mtp*, so its MTP layers were left out",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_check_and_an_engine_say_the_same_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from vllm.engine.arg_utils import EngineArgs

    target, spec, problem = CASES[case](tmp_path / "model")
    assert main(["check", target, "--speculative-config", json.dumps(spec)]) == 2
    said = capsys.readouterr().err.splitlines()[0]
    with pytest.raises(ConfigError) as raised:
        EngineArgs(model=target, speculative_config=spec).create_engine_config()
    assert said == f"vllm-ascend-spec check: error: {raised.value}"
    assert problem in said


def test_a_hubs_target_is_looked_at_when_vllm_has_its_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the platform, within vLLM's own configuration; the error is ours all the same."""
    from vllm.engine.arg_utils import EngineArgs

    target = write(tmp_path / "model", "GraniteMoeHybridForCausalLM")
    monkeypatch.setattr(cpu, "with_state", lambda config: None)
    with pytest.raises(ConfigError, match=STATE):
        EngineArgs(model=target, speculative_config=NGRAM).create_engine_config()


def test_gated_delta_net_is_taken_where_this_package_has_the_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = write(tmp_path / "model", "Qwen3NextForCausalLM")
    words = ["check", "--light", target, "--speculative-config", json.dumps(NGRAM)]
    monkeypatch.setattr(cpu, "NO_GATED_DELTA_NET_ON_CPU", None)
    assert main(words) == 0, capsys.readouterr().err
    monkeypatch.setattr(cpu, "NO_GATED_DELTA_NET_ON_CPU", "vLLM 0.23")
    assert main(words) == 2
    assert "whose layers keep a state, and vLLM 0.23; leave" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cuda", "npu"])
def test_other_devices_take_such_targets(
    device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = write(tmp_path / "model", "Qwen3NextForCausalLM")
    words = [target, "--speculative-config", json.dumps(NGRAM)]
    assert main(["check", "--light", "--device", device, *words]) == 0, capsys.readouterr().err


def test_without_speculation_nothing_is_refused(tmp_path: Path) -> None:
    assert main(["check", "--light", write(tmp_path / "model", "Qwen3NextForCausalLM")]) == 0


def test_a_hybrid_of_attention_alone_has_no_state() -> None:
    """Such as Granite 4.0 Micro (vllm/config/model.py:ModelConfig.is_hybrid)."""
    config = {"architectures": ["GraniteMoeHybridForCausalLM"], "layer_types": ["attention"] * 2}
    assert with_state(config) is None
    assert (
        with_state({**config, "layer_types": ["attention", "mamba"]}) == config["architectures"][0]
    )


def test_architectures_with_a_state_are_those_of_vllm() -> None:
    from vllm.model_executor.models import registry

    bases: dict[str, set[str]] = {}
    root = Path(vllm.__file__).parent
    for folder in (root / "model_executor" / "models", root / "models"):
        for path in folder.rglob("*.py"):
            for name, named in CLASS.findall(path.read_text()):
                bases.setdefault(name, set()).update(re.findall(r"\w+", named))

    def all_bases(name: str) -> set[str]:
        direct = bases.get(name, set()) - {name}
        return direct.union(*map(all_bases, direct))

    protocols = {"HasInnerState", "IsHybrid", "IsAttentionFree"}
    tables = registry._TEXT_GENERATION_MODELS | registry._MULTIMODAL_MODELS
    # Embeds and generates nothing.
    found = {name for name, (_, of) in tables.items() if all_bases(of) & protocols} - {"Terratorch"}
    assert found == ARCHITECTURES
