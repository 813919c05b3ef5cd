"""Which heads are trained, for which targets, with which layers; and what is missing for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.eagle3 import write_variant
from tests.zoo import SHALLOW, ZOO
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training import requirements
from vllm_ascend_spec.training.head_layers import layers_of_head
from vllm_ascend_spec.training.methods import METHODS, check_layers, default_layers, problem

TARGET = SHALLOW / "target"


@pytest.mark.parametrize("method", METHODS)
def test_layers_are_three_of_the_targets(method: str) -> None:
    for depth in range(3, 80):
        layers = default_layers(method, depth)
        check_layers("--layers", method, layers, depth)
    assert default_layers(method, 32) == (2, 16, 29)
    assert default_layers(method, 3) == (1, 2, 3)


def test_layers_that_a_head_cannot_read_are_refused() -> None:
    for layers in ((1, 2, 13), (1, 1, 2), (1, 2)):
        with pytest.raises(ConfigError, match=r"--layers.*valid: 3 different ones from 0 to 12"):
            check_layers("--layers", "eagle3", layers, 12)
    for layers in ((0, 1, 2), (1, 1)):
        with pytest.raises(ConfigError, match=r"--layers.*valid: different ones from 1 to 12"):
            check_layers("--layers", "dflash", layers, 12)
    check_layers("--layers", "eagle3", (0, 1, 2), 12)


@pytest.mark.parametrize("method", ["dflash", "dspark"])
def test_heads_of_blocks_read_any_number_of_layers(method: str) -> None:
    for layers in ((2, 10, 18, 26, 34), (3,)):
        check_layers("--layers", method, layers, 36)


@pytest.mark.parametrize("method", METHODS)
def test_the_zoos_target_can_be_trained_for(method: str) -> None:
    for device in ("cpu", "cuda", "npu"):
        assert problem(method, device, TARGET) is None


@pytest.mark.parametrize("method", ["eagle", "mtp", "dflash2", "medusa"])
def test_another_method_is_refused_by_name(method: str) -> None:
    found = problem(method, "cpu", TARGET)
    assert found is not None
    assert found.endswith("valid: eagle3, peagle, dflash, dspark")


def test_another_device_is_refused() -> None:
    found = problem("eagle3", "xpu", TARGET)
    assert found == "cannot be trained on xpu; valid: cpu, cuda, npu"


def test_a_target_without_embeddings_is_refused(tmp_path: Path) -> None:
    found = problem("eagle3", "cpu", ZOO / "medusa")
    assert found is not None
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": 2}))
    found = problem("eagle3", "cpu", tmp_path)
    assert found is not None
    assert str(tmp_path) in found or "2 layers" in found


def test_what_is_missing_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if "_" in name else name)
    found = requirements.missing()
    assert found is not None
    assert found.startswith("hs_connectors, pydantic_settings missing")
    assert "pip install --no-deps speculators==0.9.0 hs-connectors==0.9.0" in found
    monkeypatch.setattr(requirements, "PYTHON", (9, 9))
    assert requirements.missing() == (
        "hs_connectors, pydantic_settings missing; speculators needs Python 3.11 or later"
    )
    monkeypatch.setattr(requirements, "find_spec", lambda name: name)
    assert requirements.missing() is None


@pytest.mark.parametrize(
    ("method", "layers"), [("eagle3", (3, 7, 12)), ("dflash", (3, 7, 12)), ("dspark", (3, 7, 12))]
)
def test_a_head_says_whose_outputs_it_reads(method: str, layers: tuple[int, ...]) -> None:
    assert layers_of_head(method, ZOO / method, 12) == layers


def test_a_head_in_the_librarys_form_says_it_too(tmp_path: Path) -> None:
    head = write_variant("speculators", tmp_path / "head")
    assert layers_of_head("eagle3", head, 12) == (3, 7, 12)


def test_a_head_that_names_none_reads_the_usual_ones(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 8}))
    assert layers_of_head("eagle3", tmp_path, 32) == (2, 16, 29)
