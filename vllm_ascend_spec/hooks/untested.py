"""Warn about parts of ours that do not fit an untested version of vLLM that was let in."""

from __future__ import annotations

import logging
import multiprocessing

from vllm_ascend_spec.log import log_once
from vllm_ascend_spec.versions import UNTESTED_VARIABLE, is_let_in


def warn(name: str, version: str) -> None:
    """Warn once about an untested version, and about each part of ours that does not fit it.

    Args:
        name: name of vLLM's distribution.
        version: version of that distribution.
    """
    # The main process has already warned on behalf of an engine's own processes.
    if not is_let_in(version) or multiprocessing.parent_process() is not None:
        return
    from vllm_ascend_spec.conformance import look

    log_once(
        logging.WARNING,
        f"{name} {version} was let in by {UNTESTED_VARIABLE}=1. This release was never run with "
        "it: compare its answers with those of no speculation.",
    )
    for use in look.uses(look.installed_folders(), look.installed_versions()):
        if use.problem:
            log_once(logging.WARNING, f"does not fit {name} {version}: {use}")
