"""Give clear errors for requests that set their own number of drafts, or a seed out of range.

Why: vLLM passes a request's extra arguments on without reading them. Offline it does not check
seeds either, and one of more than 64 bits ends the engine.
How: where vLLM checks a request's parameters, these are checked, too. If one is wrong, a server
answers 400 and ``LLM`` raises.
Until: never; this is our own feature, hooked in where vLLM has no hook.
"""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.config.resolved import speculation_of
from vllm_ascend_spec.config.schedule import NAME as SCHEDULE
from vllm_ascend_spec.config.schedulers import SCHEDULERS
from vllm_ascend_spec.control.request import NAME, check_request
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.methods.registry import all_methods
from vllm_ascend_spec.patches.patching import Patches

_patches = Patches()


def revert() -> None:
    """Undo the hook."""
    _patches.revert()


def apply() -> None:
    """Install the hook once."""
    if _patches:
        return
    from vllm.exceptions import VLLMValidationError
    from vllm.v1.engine.input_processor import InputProcessor

    stock = InputProcessor._validate_params

    def _validate_params(self: Any, params: Any, *args: Any, **kwargs: Any) -> Any:
        found = stock(self, params, *args, **kwargs)
        try:
            check_seed(getattr(params, "seed", None), getattr(params, "n", 1))
            check(getattr(params, "extra_args", None), self.vllm_config)
        except ConfigError as error:
            # Any other error would give status 500, as if it were the server's fault.
            raise VLLMValidationError(str(error)) from error
        return found

    _patches.set(InputProcessor, "_validate_params", _validate_params)


def check_seed(seed: Any, count: int) -> None:
    """Check a request's seed.

    Args:
        seed: as given; None without one.
        count: number of answers, ``n``; vLLM gives them the seeds from ``seed`` on.

    Raises:
        ConfigError: a seed does not fit into 64 bits.
    """
    if isinstance(seed, int) and not -(1 << 63) <= seed <= (1 << 64) - count:
        raise ConfigError("seed", seed, "valid: a whole number from -2^63 to 2^64 - n")


def check(extra_args: Any, vllm_config: Any) -> None:
    """Check a request's extra arguments.

    Raises:
        ConfigError: our argument is invalid, or not possible in this engine; the message says why.
    """
    if not extra_args or NAME not in extra_args:
        return
    if vllm_config.speculative_config is None:
        check_request(extra_args, None)
        return
    speculation = speculation_of(vllm_config)
    refusal, scheduler = None, vllm_config.scheduler_config.scheduler_cls
    method = all_methods()[speculation.method]
    if SCHEDULE not in method.options:
        refusal = f"not possible with method {method.name!r}, whose drafts are its result"
    elif scheduler not in SCHEDULERS.values():
        refusal = f"not possible with the scheduler {scheduler!r}, which drafts alike for all"
    check_request(extra_args, speculation.max_k, refusal)
