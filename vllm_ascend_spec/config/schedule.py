"""The schedule of K: the number of drafts for each batch size."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.messages import short_repr
from vllm_ascend_spec.upstream.limits import FIXED_K

NAME = "num_speculative_tokens_per_batch_size"
LIMIT = "disable_by_batch_size"


def with_schedule(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``spec`` with the schedule that ``disable_by_batch_size`` stands for, if it is given.

    vLLM had this option before it had schedules. Larger batches get no drafts.

    Args:
        spec: the speculative config; each value alone has been checked.

    Raises:
        ConfigError: both are given.
    """
    limit = spec.get(LIMIT)
    if limit is None:
        return spec
    if spec.get(NAME) is not None:
        raise ConfigError(
            f"speculative_config.{LIMIT}", limit, f"contradicts {NAME}; give one of the two"
        )
    # Batches larger than those of the last row have its K, too.
    rows = [[1, limit, spec["num_speculative_tokens"]], [limit + 1, limit + 1, 0]]
    return {**spec, NAME: rows}


def option_of(spec: Mapping[str, Any]) -> str:
    """Return the option that asked for a schedule."""
    return f"speculative_config.{NAME if spec.get(LIMIT) is None else LIMIT}"


def check_schedule(request: SpecInput) -> None:
    """Check each row, and that neighbouring rows fit together.

    vLLM sorts rows, fills gaps with the row before and cuts K to ``num_speculative_tokens``. Here
    each of these is an error, because it is a mistake more often than not.

    Raises:
        ConfigError: this version has no schedules, a row is malformed, K is out of range, or
            there is a gap or an overlap.
    """
    rows = request.spec.get(NAME)
    if rows is None:
        return
    if FIXED_K is not None:
        option = option_of(request.spec)
        given = request.spec[option.rpartition(".")[2]]
        raise ConfigError(option, given, f"not possible with {FIXED_K}")
    longest = request.spec["num_speculative_tokens"]
    problem = next((found for row in rows if (found := _problem_of_row(row, longest))), None)
    if problem is None and rows[0][0] != 1:
        problem = f"the first row {short_repr(list(rows[0]), 40)} must begin with batch size 1"
    if problem is None:
        problem = next(
            (
                f"row {short_repr(list(row), 40)} must begin right after the previous row, with "
                f"{short_repr(before[1] + 1, 20)}"
                for before, row in pairwise(rows)
                if row[0] != before[1] + 1
            ),
            None,
        )
    if problem is not None:
        raise ConfigError(
            f"speculative_config.{NAME}",
            rows,
            f"{problem}; valid: rows [first, last, K], e.g. [[1, 8, {longest}], [9, 64, 1]]",
        )


def _problem_of_row(row: Any, longest: int) -> str | None:
    is_row = isinstance(row, list | tuple) and len(row) == 3
    if not is_row or not all(isinstance(n, int) and not isinstance(n, bool) for n in row):
        return f"{short_repr(row, 40)} is no row of three whole numbers"
    first, last, k = row
    if not 1 <= first <= last:
        return f"row {short_repr(list(row), 40)} must ascend from 1 or more"
    if not 0 <= k <= longest:
        return f"K={short_repr(k, 20)} is not within 0 to num_speculative_tokens={longest}"
    return None


def has_lockstep_replicas(vllm_config: Any) -> bool:
    """Tell whether data-parallel replicas step together, so that no draft may be left out.

    vLLM's replicas of a dense target are independent engines
    (``vllm/config/parallel.py:ParallelConfig.reconfigure_for_independent_dp_rank``); replicas of a
    mixture of experts exchange tokens in each pass.
    """
    model = vllm_config.model_config
    copies = vllm_config.parallel_config.data_parallel_size
    return copies > 1 and (model is None or model.is_moe)
