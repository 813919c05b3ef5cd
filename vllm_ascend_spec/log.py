"""Loggers that vLLM's own handler prints. Standard library only."""

from __future__ import annotations

import functools
import logging

# vLLM configures the logger "vllm" and nothing else: only its children reach the terminal.
PARENT = "vllm.plugins.ascend_spec"


def get_logger(name: str) -> logging.Logger:
    """Return the logger of module ``name`` below vLLM's."""
    return logging.getLogger(f"{PARENT}.{name.removeprefix('vllm_ascend_spec.')}")


@functools.cache
def log_once(level: int, message: str) -> None:
    """Log ``message`` the first time it is given in this process."""
    logging.getLogger(PARENT).log(level, message)
