"""Find all errors of a command line, not only the first.

A check may rely on those before it, so checking stops at an error. The refused option is then left
out and everything is checked again: whatever is refused then is wrong, too.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.config.resolved import SpecConfig
from vllm_ascend_spec.config.schema import SECTION
from vllm_ascend_spec.errors import AscendSpecError, ConfigError
from vllm_ascend_spec.hooks import engine_args

# Defaults of the flags that our checks read.
UNSET: Mapping[str, Any] = {
    "async_scheduling": None,
    "compilation_config": None,
    "cudagraph_capture_sizes": None,
    "data_parallel_size": 1,
    "enable_eplb": False,
    "enforce_eager": False,
    "kv_transfer_config": None,
    "max_model_len": None,
    "max_num_seqs": None,
    "optimization_level": None,
    "pipeline_parallel_size": 1,
    "tensor_parallel_size": 1,
}
SPEC, OURS = "speculative_config", f"additional_config.{SECTION}"
# Most errors to look for; speculative configs have fewer keys than that.
MOST = 20


def resolved(
    namespace: argparse.Namespace,
) -> tuple[SpecConfig | None, tuple[AscendSpecError, ...]]:
    """Return the resolved speculation of a command line, or all of its errors.

    Args:
        namespace: result of vLLM's parser; not changed.

    Returns:
        The speculation (None without one) and no errors; or None and the errors, of which the first
        is the one that starting an engine would raise.
    """
    trial = copy.copy(namespace)
    trial.speculative_config = _plain(engine_args.merged_speculative_config(trial))
    trial.additional_config = _plain(trial.additional_config)
    trial.spec_method = trial.spec_model = trial.spec_tokens = None
    found: list[AscendSpecError] = []
    seen: set[str] = set()
    while len(found) < MOST:
        try:
            speculation = engine_args.resolve_args(trial)
        except ConfigError as error:
            # This option is refused only because it is left out now; giving it was right.
            if error.option in seen:
                break
            seen.add(error.option)
            found.append(error)
            if not leave_out(trial, error.option):
                break
        except AscendSpecError as error:
            found.append(error)
            break
        else:
            return (None if found else speculation), tuple(found)
    return None, tuple(found)


def leave_out(namespace: argparse.Namespace, option: str) -> bool:
    """Remove an option from a command line.

    Args:
        namespace: parsed command line; changed in place.
        option: name of the option, as an error gives it.

    Returns:
        Whether there was something to remove.
    """
    where, _, key = option.rpartition(".")
    if where == SPEC:
        return _drop(namespace.speculative_config, key)
    if where == OURS:
        return _drop(namespace.additional_config[SECTION], key)
    if where == "additional_config" and key != SECTION:
        return _drop(namespace.additional_config, key)
    name = option.removeprefix("--").replace("-", "_").removeprefix("compilation_config.")
    if name not in UNSET or getattr(namespace, name, UNSET[name]) == UNSET[name]:
        return False
    setattr(namespace, name, UNSET[name])
    return True


def _drop(table: Any, key: str) -> bool:
    """Remove a key from a JSON object, written with hyphens or underscores."""
    if not isinstance(table, dict):
        return False
    written = [name for name in table if str(name).replace("-", "_") == key]
    for name in written:
        del table[name]
    return bool(written)


def _plain(value: Any) -> Any:
    """Return a copy of a JSON value that may be changed."""
    return copy.deepcopy(dict(value)) if isinstance(value, Mapping) else value
