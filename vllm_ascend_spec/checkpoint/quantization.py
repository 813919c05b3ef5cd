"""Tell whether a checkpoint's weights are quantized: then names, shapes and dtypes vary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

KEYS = ("quantization_config", "compression_config")
# What quantization tools write beside config.json: ModelSlim, GPTQ, AWQ, INC, ModelOpt.
FILES = (
    "quant_model_description.json",
    "quantize_config.json",
    "quant_config.json",
    "quantization_config.json",
    "hf_quant_config.json",
)


def is_quantized(folder: Path, config: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint says that its weights are quantized."""
    return any(config.get(key) for key in KEYS) or any((folder / name).exists() for name in FILES)
