"""Which files of a folder vLLM loads, and the tensors in all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from vllm_ascend_spec.checkpoint.config_json import parse_object
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, printable, short_value, some
from vllm_ascend_spec.checkpoint.safetensors import Tensor, read_tensors

PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")
INDEX = "model.safetensors.index.json"
# If there is one, vLLM reads Mistral's own format and nothing else
# (vllm/model_executor/model_loader/default_loader.py:DefaultModelLoader).
MISTRAL = "consolidated*.safetensors"
MISTRAL_INDEX = "consolidated.safetensors.index.json"


def require_safetensors(folder: Path) -> None:
    """Raise unless the folder has safetensors weights.

    Raises:
        InvalidCheckpointError: the weights are pickled or missing.
    """
    if any(folder.glob("*.safetensors")):
        return
    pickled = sorted(p.name for p in folder.iterdir() if p.suffix in PICKLE_SUFFIXES)
    if pickled:
        raise InvalidCheckpointError(
            f"its weights are pickled ({printable(pickled[0])}), which can run code when loaded; "
            "valid: *.safetensors (load it once with transformers and call save_pretrained)"
        )
    raise InvalidCheckpointError("the folder has no weights; valid: *.safetensors")


def is_mistral_format(folder: Path) -> bool:
    """Return whether vLLM reads the folder in Mistral's own format."""
    return any(folder.glob(MISTRAL))


def read_checkpoint(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of all files that vLLM loads, by name.

    Raises:
        InvalidCheckpointError: a file is missing or damaged, or a tensor is in two files.
    """
    require_safetensors(folder)
    mistral = is_mistral_format(folder)
    files = sorted(folder.glob(MISTRAL if mistral else "*.safetensors"))
    index = folder / (MISTRAL_INDEX if mistral else INDEX)
    if not index.exists():
        return _merged(files)
    placed = _read_index(index)
    named = set(placed.values())
    missing = sorted(named - {path.name for path in files})
    if missing:
        raise InvalidCheckpointError(f"{some(missing)}: missing, but named in {index.name}")
    tensors = _merged(path for path in files if path.name in named)
    _check_index(index, placed, tensors)
    return tensors


def _merged(files: Iterable[Path]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in files:
        found = read_tensors(path)
        for name in found.keys() & tensors.keys():
            places = f"{tensors[name].path.name} and {path.name}"
            raise InvalidCheckpointError(
                f"{printable(name)} is in both {places}; valid: each tensor in one file"
            )
        tensors.update(found)
    return tensors


def _read_index(index: Path) -> dict[str, str]:
    """Return which file an index says each tensor is in."""
    placed = parse_object(index.name, index.read_bytes()).get("weight_map")
    texts = isinstance(placed, dict) and all(isinstance(file, str) for file in placed.values())
    if not placed or not texts:
        raise InvalidCheckpointError(
            f"weight_map in {index.name} is {short_value(placed)}; valid: the file of each tensor"
        )
    return dict(placed)


def _check_index(index: Path, placed: Mapping[str, str], tensors: Mapping[str, Tensor]) -> None:
    for name, file in placed.items():
        tensor = tensors.get(name)
        if tensor is None or tensor.path.name != file:
            raise InvalidCheckpointError(
                f"{file} has no tensor {printable(name)}, but {index.name} says it has"
            )
