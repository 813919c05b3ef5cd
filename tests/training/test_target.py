"""A target's hash says which checkpoint it is: the same elsewhere, another for other weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.zoo import TARGET
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.target import target_hash


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return shutil.copytree(TARGET, tmp_path / "elsewhere")


def test_a_copy_is_the_same_target(copy: Path) -> None:
    (copy / "notes.txt").write_text("of somebody's")
    assert target_hash(copy) == target_hash(Path(TARGET))
    assert int(target_hash(copy), 16)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_another_config_or_tokenizer_is_another_target(copy: Path, name: str) -> None:
    (copy / name).write_text((copy / name).read_text() + " ")
    assert target_hash(copy) != target_hash(Path(TARGET))


def test_fine_tuned_weights_are_another_target(copy: Path) -> None:
    """Config and sizes are the same then."""
    path = copy / "model.safetensors"
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle:] = bytes(255 - byte for byte in content[middle:])
    path.write_bytes(content)
    assert target_hash(copy) != target_hash(Path(TARGET))


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^MODEL=.*nowhere.*cannot be read"):
        target_hash(tmp_path / "nowhere")
