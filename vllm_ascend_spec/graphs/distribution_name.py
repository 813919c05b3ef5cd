"""Find the load that a user names."""

from __future__ import annotations

import os
from pathlib import Path

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs import batch_distribution as loads
from vllm_ascend_spec.graphs import distribution_file
from vllm_ascend_spec.graphs.batch_distribution import BatchDistribution

NORMAL = "normal"
VALID = "valid: uniform, zipf, normal:MEAN,DEVIATION or a file of counts"


def named(
    text: str, max_num_seqs: int, option: str = "load", valid: str = VALID
) -> BatchDistribution | None:
    """Return the load that a text names; None if the text is the path of an existing file.

    Args:
        text: name or path, as given.
        max_num_seqs: most requests that the engine runs at once.
        option: name of the option that gave the text.
        valid: valid values of that option, for errors.

    Raises:
        ConfigError: the text is neither.
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
    # This is also False for a text that cannot be a path.
    if not os.path.exists(text):
        raise ConfigError(option, text, f"there is no such file; {valid}")
    return None


def named_or_read(text: str, max_num_seqs: int, option: str) -> BatchDistribution:
    """Return the load that a text names, or read it from a file of counts.

    Raises:
        ConfigError: the text is neither, or the file is unreadable or invalid; the message names a
            bad line.
    """
    found = named(text, max_num_seqs, option)
    if found is not None:
        return found
    content = distribution_file.read_text(option, Path(text))
    return distribution_file.read_histogram(content, text, max_num_seqs)
