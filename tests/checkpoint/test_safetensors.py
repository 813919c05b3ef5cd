"""Headers against files; the safetensors library is asked the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from tests.config.checkpoints import WEIGHTS, write_checkpoint, write_eagle, write_file
from tests.config.damage import FILES, HEADERS
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError
from vllm_ascend_spec.checkpoint.safetensors import Tensor, read_tensors

# The library lets these through; vLLM then takes one of the two.
LIBRARY_ACCEPTS = {"a tensor twice", "no tensors"}
DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32),
    *(torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.float8_e8m0fnu),
    *(torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
]


def test_healthy_file_is_read_with_shapes_dtypes_and_places(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    tensors = {"a": torch.ones(2, 3, dtype=torch.bfloat16), "b": torch.zeros(0, 4)}
    save_file(tensors, path, metadata={"format": "pt"})
    found = read_tensors(path)
    begin = path.stat().st_size - 12
    assert found["a"] == Tensor("BF16", (2, 3), path, begin, begin + 12)
    assert found["b"].shape == (0, 4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_that_the_library_writes_is_read(tmp_path: Path, dtype: torch.dtype) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"scalar": torch.zeros((), dtype=dtype), "w": torch.zeros(3, dtype=dtype)}, path)
    found = read_tensors(path)
    assert found["w"].end - found["w"].start == 3 * dtype.itemsize


@pytest.mark.parametrize("damage", [*FILES, *HEADERS])
def test_what_is_refused_the_library_does_not_load(tmp_path: Path, damage: str) -> None:
    folder = write_eagle(tmp_path / "eagle")
    {**FILES, **HEADERS}[damage][0](folder)
    path = folder / WEIGHTS
    with pytest.raises((InvalidCheckpointError, OSError)):
        read_tensors(path)
    if damage == "a pipe":
        return  # the library would wait for a writer for ever
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
    except (SafetensorError, OSError):
        assert damage not in LIBRARY_ACCEPTS
    else:
        assert damage in LIBRARY_ACCEPTS, names


def test_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "draft") / WEIGHTS
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(InvalidCheckpointError, match="was it fetched whole"):
            read_tensors(path)
    path.write_bytes(content)
    assert read_tensors(path)


def one_entry(shape: str, offsets: str) -> str:
    return f'{{"w": {{"dtype": "F32", "shape": [{shape}], "data_offsets": [{offsets}]}}}}'


ABSURD = {
    "sizes": one_entry(f"{'9' * 4000}, {'9' * 4000}", "0, 4"),
    "dimensions": one_entry(", ".join(["99"] * 10**5), "0, 4"),
    "digits": one_entry("1", "0, " + "9" * 5000),
    "a name": '{"' + "w" * 10**6 + '": 3}',
    "unprintable": one_entry("1", "0, 4").replace("w", "line\\nbreak\\u0000"),
}


@pytest.mark.parametrize("header", ABSURD.values(), ids=ABSURD.keys())
def test_absurd_header_ends_in_one_short_line(tmp_path: Path, header: str) -> None:
    path = tmp_path / "w.safetensors"
    write_file(path, header)
    with pytest.raises(InvalidCheckpointError) as raised:
        read_tensors(path)
    assert len(str(raised.value)) <= 240
    assert str(raised.value).isprintable()


def test_padding_behind_the_header_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_file(path, '{"w": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}}    ', b"ab")
    assert read_tensors(path)["w"].shape == (2,)


def test_bytes_of_tensors_are_not_read(tmp_path: Path) -> None:
    """A sparse file of a terabyte: reading it would take minutes."""
    path = tmp_path / "w.safetensors"
    entry = {"dtype": "U8", "shape": [2**40], "data_offsets": [0, 2**40]}
    write_file(path, {"w": entry})
    os.truncate(path, path.stat().st_size + 2**40)
    assert read_tensors(path)["w"].shape == (2**40,)
