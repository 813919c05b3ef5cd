"""What vLLM loads right passes: no variant of a healthy draft is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoint.variants import BOTH, DRAFT_MODEL, EAGLE, QUANTIZED, join, quantize
from tests.config.checkpoints import edit_config, edit_tensors, write_checkpoint, write_eagle
from tests.config.damage import find
from tests.config.draft_checks import check_checkpoint, check_draft
from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.errors import CheckpointError

OPTION = "speculative_config.model"
ZOO = Path(__file__).parents[2] / "examples" / "zoo"
WRITE: dict[str, Callable[..., Path]] = {"eagle": write_eagle, "draft_model": write_checkpoint}
VARIANTS = [
    *((method, name, change) for method in WRITE for name, change in BOTH.items()),
    *(("eagle", name, change) for name, change in EAGLE.items()),
    *(("draft_model", name, change) for name, change in DRAFT_MODEL.items()),
]


@pytest.mark.parametrize(
    ("method", "folder"), [("eagle", "eagle"), ("draft_model", "draft"), ("draft_model", "target")]
)
def test_checkpoints_of_the_zoo_pass(method: str, folder: str) -> None:
    check_checkpoint(method, Draft(OPTION, "x", ZOO / folder, ZOO / "target"))


@pytest.mark.parametrize(
    ("method", "name", "change"), VARIANTS, ids=[f"{method}-{name}" for method, name, _ in VARIANTS]
)
@pytest.mark.parametrize("layers", [1, 3])
def test_variant_passes(
    tmp_path: Path, method: str, name: str, change: Callable[[Path], object], layers: int
) -> None:
    target = write_checkpoint(tmp_path / "target")
    folder = WRITE[method](tmp_path / "draft", num_hidden_layers=layers)
    change(folder)
    check_checkpoint(method, Draft(OPTION, "x", folder, target))


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"])
@pytest.mark.parametrize("method", WRITE)
def test_floating_dtypes_pass(tmp_path: Path, method: str, dtype: str) -> None:
    """VLLM casts each to the dtype of the engine."""
    check_checkpoint(method, Draft(OPTION, "x", WRITE[method](tmp_path / "draft", dtype=dtype)))


@pytest.mark.parametrize("kind", QUANTIZED)
@pytest.mark.parametrize("method", WRITE)
def test_quantized_checkpoint_passes(tmp_path: Path, method: str, kind: str) -> None:
    folder = WRITE[method](tmp_path / "draft", num_hidden_layers=2)
    quantize(kind)(folder)
    check_checkpoint(method, Draft(OPTION, "x", folder))


def test_quantized_and_joined_checkpoint_passes(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "draft")
    join(folder)
    quantize("gptq")(folder)
    check_checkpoint("draft_model", Draft(OPTION, "x", folder))


@pytest.mark.parametrize("kind", QUANTIZED)
def test_quantized_checkpoint_without_a_module_is_refused(tmp_path: Path, kind: str) -> None:
    folder = write_checkpoint(tmp_path / "draft", num_hidden_layers=2)
    quantize(kind)(folder)
    edit_tensors(folder, lambda entries: [entries.pop(n) for n in list(entries) if "0.mlp.up" in n])
    with pytest.raises(CheckpointError, match=r"no tensor model\.layers\.0\.mlp\.up_proj\.\*"):
        check_checkpoint("draft_model", Draft(OPTION, "x", folder))


@pytest.mark.parametrize("kind", QUANTIZED)
def test_quantized_checkpoint_is_refused_where_its_floats_are_of_another_size(
    tmp_path: Path, kind: str
) -> None:
    folder = write_checkpoint(tmp_path / "draft")
    quantize(kind)(folder)
    edit_config(folder, vocab_size=17)
    with pytest.raises(CheckpointError, match=r"embed_tokens\.weight .* is \[16, 4\]; valid: \[17"):
        check_checkpoint("draft_model", Draft(OPTION, "x", folder))


def int8(folder: Path) -> Path:
    """Leave nothing that says so beside the weights."""
    quantize("compressed-tensors int8")(folder)
    return edit_config(folder, quantization_config=None)


def test_quantization_may_be_named_by_the_option(tmp_path: Path) -> None:
    folder = int8(write_checkpoint(tmp_path / "draft"))
    spec = {"method": "draft_model", "model": str(folder)}
    with pytest.raises(CheckpointError, match="quantization_config"):
        check_draft(spec, folder, "auto")
    check_draft({**spec, "quantization": "ascend"}, folder, "auto")


def saved_by_vllm(folder: Path) -> None:
    """Name the tensors as ``save_sharded_state`` does."""
    edit_tensors(folder, lambda e: e.update({"model.x": e.pop(find(e, "norm.weight"))}))


@pytest.mark.parametrize(
    ("spec", "load_format", "passes"),
    [
        ({}, "auto", False),
        ({}, "safetensors", False),
        ({}, "sharded_state", True),
        ({}, "runai_streamer_sharded", True),
        ({"draft_load_config": {"load_format": "sharded_state"}}, "auto", True),
        ({"draft_load_config": {"load_format": "auto"}}, "sharded_state", False),
        ({"draft_load_config": {}}, "sharded_state", False),
        ({"draft_load_config": {"load_format": "dummy"}}, "auto", True),
        ({}, "dummy", True),
    ],
)
def test_names_of_tensors_are_left_to_load_formats_with_names_of_their_own(
    tmp_path: Path, spec: dict[str, object], load_format: str, passes: bool
) -> None:
    folder = write_checkpoint(tmp_path / "draft")
    saved_by_vllm(folder)
    spec = {"method": "draft_model", "model": "x", **spec}
    if passes:
        check_draft(spec, folder, load_format)
    else:
        with pytest.raises(CheckpointError, match="no tensor"):
            check_draft(spec, folder, load_format)


def test_only_the_files_that_vllm_loads_are_looked_at(tmp_path: Path) -> None:
    """With an index those that it names, and of Mistral's own format nothing else."""
    folder = write_checkpoint(tmp_path / "draft")
    BOTH["sharded"](folder)
    (folder / "other.safetensors").write_bytes(b"not looked at")
    check_checkpoint("draft_model", Draft(OPTION, "x", folder))
    mistral = write_checkpoint(tmp_path / "mistral", {"layers.0.attention.wq.weight": [4, 4]})
    (mistral / "model.safetensors").rename(mistral / "consolidated.safetensors")
    (mistral / "model-00001-of-00001.safetensors").write_bytes(b"not looked at")
    check_checkpoint("draft_model", Draft(OPTION, "x", mistral))
