"""The safetensors format: eight bytes of length, a JSON header of that length, the tensors' bytes.

Reads headers only; the sizes of files tell whether the tensors after them are all there.
https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, printable, short_value

HEADER_PREFIX = 8
LONGEST_HEADER = 100_000_000  # the library refuses longer ones
LFS_POINTER = b"version https://git-lfs"
# The dtypes of safetensors 0.8 in bits.
BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}


@dataclass(frozen=True)
class Tensor:
    """What a header says of one tensor.

    Attributes:
        dtype: a key of ``BITS``.
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
        UnusableError: the file is not a safetensors file, or is incomplete.
        OSError: it cannot be read.
    """
    size = _size_of(path)
    header, begin = _read_header(path, size)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise InvalidCheckpointError(f"{path.name}: __metadata__ in its header is no table of text")
    if not header:
        raise InvalidCheckpointError(f"{path.name} has no tensors")
    tensors = [(name, _tensor(path, begin, name, entry)) for name, entry in header.items()]
    tensors.sort(key=lambda item: (item[1].start, item[1].end))
    _check_body(path, tensors, begin, size)
    return dict(tensors)


def _size_of(path: Path) -> int:
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise InvalidCheckpointError(f"{path.name} is a folder; valid: a safetensors file")
    if not stat.S_ISREG(status.st_mode):
        raise InvalidCheckpointError(
            f"{path.name} is not a regular file; valid: a safetensors file"
        )
    if status.st_size < HEADER_PREFIX:
        much = f"has {status.st_size} bytes" if status.st_size else "is empty"
        raise InvalidCheckpointError(f"{path.name} {much}; was it fetched whole?")
    return status.st_size


def _read_header(path: Path, size: int) -> tuple[dict[str, Any], int]:
    """Return the header and where it ends, in bytes from the file's beginning."""
    with path.open("rb") as file:
        prefix = file.read(HEADER_PREFIX)
        length = int.from_bytes(prefix, "little")
        if length > min(size - HEADER_PREFIX, LONGEST_HEADER):
            if (prefix + file.read(len(LFS_POINTER))).startswith(LFS_POINTER):
                raise InvalidCheckpointError(
                    f"{path.name} is a Git LFS pointer; valid: the file itself (git lfs pull)"
                )
            raise InvalidCheckpointError(
                f"{path.name} is not a safetensors file: it begins with a header of {length} bytes "
                f"and has {size}; was it fetched whole?"
            )
        content = file.read(length)
    header = parse_object(f"the header of {path.name}", content, unique=True)
    return header, HEADER_PREFIX + length


def parse_object(what: str, content: bytes, *, unique: bool = False) -> dict[str, Any]:
    """Parse JSON that has to be an object.

    Args:
        what: names the JSON in a message.
        content: in UTF-8.
        unique: whether to refuse duplicate keys.

    Raises:
        UnusableError: it is something else.
    """
    hook = _without_duplicates if unique else None
    try:
        parsed = json.loads(content.decode(), object_pairs_hook=hook)
    except InvalidCheckpointError as problem:
        raise InvalidCheckpointError(f"{what} names {problem} twice") from None
    except RecursionError:
        raise InvalidCheckpointError(
            f"{what} is not JSON that can be read: nested too deep"
        ) from None
    except ValueError as error:
        raise InvalidCheckpointError(f"{what} is not JSON: {str(error)[:80]}") from None
    if not isinstance(parsed, dict):
        raise InvalidCheckpointError(f"{what} is not a JSON object")
    return parsed


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise InvalidCheckpointError(
            printable(next(name for name in names if names.count(name) > 1))
        )
    return table


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _product(shape: list[int]) -> int:
    """Return the number of elements, or any huge number for a shape too large for a file."""
    count = 1
    for size in shape:
        count *= size
        if count.bit_length() > 64:
            break
    return count


def _tensor(path: Path, begin: int, name: str, entry: Any) -> Tensor:
    where = f"{printable(name)} in {path.name}"
    if not isinstance(entry, dict) or {"dtype", "shape", "data_offsets"} - entry.keys():
        raise InvalidCheckpointError(
            f"{where}: its header entry lacks dtype, shape or data_offsets"
        )
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise InvalidCheckpointError(
            f"{where}: dtype {short_value(dtype)} is unknown; valid: BF16, F16, F32, ..."
        )
    if not isinstance(shape, list) or not all(map(_is_size, shape)):
        raise InvalidCheckpointError(f"{where}: shape {short_value(shape)} is not a list of sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise InvalidCheckpointError(
            f"{where}: data_offsets {short_value(offsets)} are not two places in the file"
        )
    needed = -(-_product(shape) * BITS[dtype] // 8)
    if offsets[1] - offsets[0] != needed:
        raise InvalidCheckpointError(
            f"{where}: {dtype} of shape {short_value(shape)} is {short_value(needed)} bytes, its "
            f"data_offsets {short_value(offsets)} hold {short_value(offsets[1] - offsets[0])}"
        )
    return Tensor(dtype, tuple(shape), path, begin + offsets[0], begin + offsets[1])


def _check_body(path: Path, tensors: list[tuple[str, Tensor]], begin: int, size: int) -> None:
    """Raise unless the tensors fill the file after its header without gap or overlap."""
    end = begin
    for name, tensor in tensors:
        if tensor.start != end:
            fault = "overlaps the one before" if tensor.start < end else "has a gap before it"
            raise InvalidCheckpointError(
                f"{printable(name)} in {path.name} {fault}: its data_offsets begin at "
                f"{short_value(tensor.start - begin)}, valid: {end - begin}"
            )
        end = tensor.end
    if end != size:
        many = f"{abs(end - size)} byte{'s' if abs(end - size) > 1 else ''}"
        fault = f"{many} short" if size < end else f"{many} longer than its header says"
        raise InvalidCheckpointError(
            f"{path.name} is {fault}: {size} bytes, valid: {end}; was it fetched whole?"
        )
