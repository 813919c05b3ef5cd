"""Rules for methods whose draft consists of heads over the target's last hidden state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vllm_ascend_spec.checkpoint.config_json import read_config
from vllm_ascend_spec.checkpoint.errors import blame
from vllm_ascend_spec.checkpoint.folder import find_folder
from vllm_ascend_spec.config.draft_options import MODEL
from vllm_ascend_spec.config.draft_tree import steps_of
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.method import ALWAYS
from vllm_ascend_spec.errors import ConfigError

# The heads are loaded by this package, run eagerly, and have no KV cache: vLLM's other options of
# a draft model have no effect on them.
OPTIONS = ALWAYS | {"model", "revision", "draft_sample_method", "draft_tensor_parallel_size"}
SIZE, NUM_DRAFTS = "draft_tensor_parallel_size", "num_speculative_tokens"


def check_whole(request: SpecInput) -> None:
    """Raise unless every device has all of the heads.

    Raises:
        ConfigError: they are to be split.
    """
    if (size := request.spec.get(SIZE)) not in (None, 1):
        problem = f"valid: 1; with method {request.method.name!r} each device has all of the heads"
        raise ConfigError(f"speculative_config.{SIZE}", size, problem)


def check_count(count_of: Callable[[Mapping[str, Any]], int]) -> Callable[[SpecInput], None]:
    """Return a rule that allows no more drafts than there are heads.

    Args:
        count_of: returns the number of heads in a config.
    """

    def check(request: SpecInput) -> None:
        if (count := number_of_heads(count_of)(request)) is not None:
            require_enough(count, steps_of(request), request.spec["model"])

    return check


def number_of_heads(
    count_of: Callable[[Mapping[str, Any]], int],
) -> Callable[[SpecInput], int | None]:
    """Return a function that counts the heads; None if the drafter has to fetch them first.

    Args:
        count_of: returns the number of heads in a config.
    """

    def count(request: SpecInput) -> int | None:
        folder = find_folder(MODEL, request.spec["model"], request.spec.get("revision"))
        if folder is None:
            return None
        with blame(MODEL, request.spec["model"]):
            return count_of(read_config(folder))

    return count


def require_enough(count: int, max_k: int, model: str) -> None:
    """Raise if K is larger than the number of heads.

    Raises:
        ConfigError: it is.
    """
    if max_k > count:
        raise ConfigError(
            f"speculative_config.{NUM_DRAFTS}",
            max_k,
            f"valid: up to {count}, the number of heads of {model}",
        )
