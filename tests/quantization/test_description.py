"""Whatever is changed in a description has one error, which names the key or the file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tests.zoo import W8A8
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError
from vllm_ascend_spec.quantization.description import (
    DYNAMIC,
    FLOAT,
    NAME,
    STATIC,
    check_checkpoint,
    parse_description,
)

DESCRIBED: dict[str, Any] = json.loads((Path(W8A8) / NAME).read_text())
LAYER = "model.layers.1.self_attn"
WRONG = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.lists(st.just(STATIC), max_size=2),
    st.dictionaries(st.just("a"), st.integers(), max_size=1),
    st.sampled_from(["", "w8a8", "W4A8", "W8A8_MIX", "FLOAT ", DYNAMIC]),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the zoo's quantized target, whose description a test writes."""
    return Path(shutil.copytree(W8A8, tmp_path_factory.mktemp("quantized") / "target"))


def refusal(folder: Path, content: bytes) -> str:
    (folder / NAME).write_bytes(content)
    with pytest.raises(InvalidCheckpointError) as raised:
        check_checkpoint(folder)
    message = str(raised.value)
    assert len(message) <= 250
    assert message.isprintable()
    return message


def test_as_it_is(folder: Path) -> None:
    (folder / NAME).write_text(json.dumps(DESCRIBED))
    assert len(check_checkpoint(folder).types) == sum(k.endswith(".weight") for k in DESCRIBED)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([key for key in DESCRIBED if key.startswith("model.")]), WRONG)
def test_another_value(folder: Path, key: str, value: Any) -> None:
    message = refusal(folder, json.dumps({**DESCRIBED, key: value}).encode())
    assert key.split(".", 3)[-1] in message
    assert NAME in message


@pytest.mark.parametrize("key", ["model_quant_type", "version", "metadata", "optional"])
def test_another_value_about_the_file(folder: Path, key: str) -> None:
    assert f"{key} is 7; valid: " in refusal(folder, json.dumps({**DESCRIBED, key: 7}).encode())


@pytest.mark.parametrize("part", ["o_proj", "k_proj"])
def test_a_key_that_is_not_there(folder: Path, part: str) -> None:
    """Its int8 numbers would be loaded as a float layer's, and be noise."""
    key = f"{LAYER}.{part}.weight"
    content = {name: kind for name, kind in DESCRIBED.items() if name != key}
    assert f"{NAME} has no {key}, which is int8" in refusal(folder, json.dumps(content).encode())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b"null", "is not a JSON object"),
        (b"{}", "names no weight"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"\xef\xbb\xbf{}", "is not JSON"),
        (b'{"a":' + b"[" * 100_000, "nested too deep"),
        (b'{"a.weight": 1' + b"0" * 5000 + b"}", "is not JSON"),
        (b'{"a.weight": "FLOAT", "a.weight": "W8A8"}', "names a.weight twice"),
    ],
)
def test_what_is_no_description(folder: Path, content: bytes, problem: str) -> None:
    message = refusal(folder, content)
    assert message.startswith(NAME)
    assert problem in message


@settings(max_examples=40, deadline=None)
@given(st.integers(0, len(json.dumps(DESCRIBED)) - 1))
def test_a_file_that_was_cut(folder: Path, length: int) -> None:
    assert NAME in refusal(folder, json.dumps(DESCRIBED).encode()[:length])


def described(folder: Path, tensors: dict[str, torch.Tensor], types: dict[str, Any]) -> bytes:
    """Write a checkpoint's tensors, and return a description of them."""
    shutil.copytree(W8A8, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return json.dumps(types).encode()


def test_layers_that_run_as_one_differ(tmp_path: Path) -> None:
    """Said before anything is loaded, not by the engine."""
    tensors = load_file(Path(W8A8) / "quant_model_weights.safetensors")
    name = f"{LAYER}.k_proj"
    tensors[f"{name}.weight"] = tensors[f"{name}.weight"].to(torch.bfloat16)
    kept = {k: v for k, v in DESCRIBED.items() if not k.startswith(f"{name}.")}
    content = described(tmp_path / "x", tensors, {**kept, f"{name}.weight": FLOAT})
    assert "fused layers have different types" in refusal(tmp_path / "x", content)
    assert f"has no {name}.weight" in refusal(tmp_path / "x", json.dumps(kept).encode())


def test_experts_differ(tmp_path: Path) -> None:
    first, second = (f"model.layers.0.mlp.experts.{n}.up_proj" for n in range(2))
    tensors = {
        f"{first}.weight": torch.zeros(2, 2),
        f"{second}.weight": torch.zeros(2, 2, dtype=torch.int8),
        f"{second}.weight_scale": torch.ones(2, 1),
    }
    types = {f"{first}.weight": FLOAT, f"{second}.weight": DYNAMIC}
    content = described(tmp_path / "x", tensors, types)
    assert "experts of a layer differ" in refusal(tmp_path / "x", content)


def test_biases_of_norms() -> None:
    """ModelSlim adds them to RMS norms; the norm of an indexer's keys has its own."""
    own = {**DESCRIBED, f"{LAYER}.indexer.k_norm.bias": FLOAT}
    assert parse_description(own) == parse_description(DESCRIBED)
    with pytest.raises(InvalidCheckpointError, match=r"input_layernorm\.bias is of a norm"):
        parse_description({**DESCRIBED, "model.layers.1.input_layernorm.bias": FLOAT})
