"""Loads by name: what a person writes for one."""

from __future__ import annotations

import os
from pathlib import Path

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs import load as loads
from vllm_ascend_spec.graphs import load_file
from vllm_ascend_spec.graphs.load import Load

NORMAL = "normal"
VALID = "valid: uniform, zipf, normal:MEAN,DEVIATION or a file of counts"


def named(text: str, max_num_seqs: int, option: str = "load", valid: str = VALID) -> Load | None:
    """Return the load that a text names; None where it is the name of a file that is there.

    Args:
        text: as given.
        max_num_seqs: of the engine.
        option: that it was given by.
        valid: what that option takes.

    Raises:
        ConfigError: it is neither.
    """
    if text in loads.NAMES:
        return {"uniform": loads.uniform, "zipf": loads.zipf}[text](max_num_seqs)
    kind, _, numbers = text.partition(":")
    if kind == NORMAL:
        try:
            mean, deviation = map(float, numbers.split(","))
        except ValueError:
            raise ConfigError(option, text, valid) from None
        return loads.normal(max_num_seqs, mean, deviation)
    # False, too, for what no file can be called.
    if not os.path.exists(text):
        raise ConfigError(option, text, f"there is no such file; {valid}")
    return None


def named_or_read(text: str, max_num_seqs: int, option: str) -> Load:
    """Return the load that a text names, or that of a file of counts.

    Raises:
        ConfigError: it is neither, or the file cannot be read; then with the line.
    """
    found = named(text, max_num_seqs, option)
    if found is not None:
        return found
    content = load_file.read_text(option, Path(text))
    return load_file.read_histogram(content, text, max_num_seqs)
