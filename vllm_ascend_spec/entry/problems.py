"""Everything that is wrong with a command line, not the first of it alone.

Each check may rely on those before it, so none goes on behind an error. Instead what was refused is
left out and everything is looked at again: what is then refused would be wrong, too.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.config.resolved import Speculation
from vllm_ascend_spec.config.schema import SECTION
from vllm_ascend_spec.entry import engine_args
from vllm_ascend_spec.errors import AscendSpecError, ConfigError

# What a flag is where nobody gives it, as far as our checks read flags.
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
# Speculative configs have fewer keys than that.
MOST = 20


def resolved(
    namespace: argparse.Namespace,
) -> tuple[Speculation | None, tuple[AscendSpecError, ...]]:
    """Return what a command line comes to, or everything that is wrong with it.

    Args:
        namespace: as vLLM's parser returns it; is left as it is.

    Returns:
        The speculation, None without one, and nothing; or None and the errors, of which the first
        is that of an engine's start.
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
            # What is wrong because it is left out now was right to be given.
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
    """Take an option away.

    Args:
        namespace: is changed.
        option: as an error names it.

    Returns:
        Whether there is something to take away.
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
    """Take a key out of a JSON object, however it is written."""
    if not isinstance(table, dict):
        return False
    written = [name for name in table if str(name).replace("-", "_") == key]
    for name in written:
        del table[name]
    return bool(written)


def _plain(value: Any) -> Any:
    """Return a copy of JSON that may be changed."""
    return copy.deepcopy(dict(value)) if isinstance(value, Mapping) else value
