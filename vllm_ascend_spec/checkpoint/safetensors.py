"""Read the headers of safetensors files; the safetensors library says whether a file is whole.

https://github.com/huggingface/safetensors#format: eight bytes of length, a JSON header of that
length, and the tensors' bytes.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint.config_json import parse_object
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError

HEADER_PREFIX = 8
LFS_POINTER = b"version https://git-lfs"
WHOLE = "was it fetched whole?"
# What the library begins its messages with.
LIBRARY_PREFIX, LONGEST_FAULT = "Error while deserializing header: ", 90


@dataclass(frozen=True)
class Tensor:
    """What a header says of one tensor.

    Attributes:
        dtype: the format's name of it, such as ``BF16``.
        shape: sizes, outermost first.
        path: its file.
        start: its first byte in the file.
        end: the byte after its last.
    """

    dtype: str
    shape: tuple[int, ...]
    path: Path
    start: int
    end: int


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file, in the order of their bytes.

    Raises:
        InvalidCheckpointError: the file is not a safetensors file, or is incomplete.
        OSError: it cannot be read.
    """
    _require_file(path)
    _require_whole(path)
    with path.open("rb") as file:
        length = int.from_bytes(file.read(HEADER_PREFIX), "little")
        content = file.read(length)
    # The library takes the last of two tensors with one name.
    header = parse_object(f"the header of {path.name}", content, unique=True)
    header.pop("__metadata__", None)
    if not header:
        raise InvalidCheckpointError(f"{path.name} has no tensors")
    begin = HEADER_PREFIX + length
    places = sorted(header, key=lambda name: tuple(header[name]["data_offsets"]))
    return {name: _tensor(header[name], path, begin) for name in places}


def _tensor(entry: dict[str, Any], path: Path, begin: int) -> Tensor:
    start, end = entry["data_offsets"]
    return Tensor(entry["dtype"], tuple(entry["shape"]), path, begin + start, begin + end)


def _require_file(path: Path) -> None:
    """Raise for files that the library hangs on or whose fault it does not name."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise InvalidCheckpointError(f"{path.name} is a folder; valid: a safetensors file")
    if not stat.S_ISREG(status.st_mode):
        raise InvalidCheckpointError(
            f"{path.name} is not a regular file; valid: a safetensors file"
        )
    with path.open("rb") as file:
        if file.read(len(LFS_POINTER)) == LFS_POINTER:
            raise InvalidCheckpointError(
                f"{path.name} is a Git LFS pointer; valid: the file itself (git lfs pull)"
            )


def _require_whole(path: Path) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np"):
            pass
    except SafetensorError as error:
        fault = str(error).removeprefix(LIBRARY_PREFIX)[:LONGEST_FAULT]
        raise InvalidCheckpointError(
            f"{path.name} is not a whole safetensors file: {fault}; {WHOLE}"
        ) from None
