"""Which checkpoint a target is, so that what one target made is not taken for another's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from vllm_ascend_spec.errors import ConfigError

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
# Of each file with weights so many places are read, so many bytes of each: models of the same form
# differ in their weights alone, and reading them whole takes minutes.
PLACES, PIECE = 16, 4096
LETTERS = 32


def target_hash(folder: Path) -> str:
    """Return 32 hexadecimal digits that depend on a checkpoint's content, not on where it is.

    They are a hash of its config and tokenizer, and of sizes and samples of its weights.

    Args:
        folder: the checkpoint's.

    Raises:
        ConfigError: it cannot be read.
    """
    found = hashlib.sha256()
    try:
        for path in (folder / CONFIG, folder / TOKENIZER):
            found.update(path.read_bytes() if path.exists() else b"")
        for path in sorted(each for each in folder.iterdir() if each.suffix in WEIGHTS):
            for piece in _samples(path):
                found.update(piece)
    except OSError as error:
        raise ConfigError("MODEL", str(folder), f"cannot be read: {error.strerror}") from None
    return found.hexdigest()[:LETTERS]


def _samples(path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    yield f"{path.name} {size}".encode()
    with path.open("rb") as file:
        for place in range(PLACES):
            file.seek(size * place // PLACES)
            yield file.read(PIECE)
