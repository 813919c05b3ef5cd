"""Whether the output folder of ``train`` is new, or was begun with the same settings."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vllm_ascend_spec.cli.train_head import FROM, MODEL
from vllm_ascend_spec.cli.train_options import flag_of
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training import output
from vllm_ascend_spec.training.atomic import TEMPORARY
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.settings import Settings

# Arguments of the engines that change memory and speed, but not what comes out.
MAY_DIFFER = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "enable_expert_parallel",
    "enforce_eager",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "max_num_seqs",
    "max_num_batched_tokens",
    "trust_remote_code",
)
# Names of settings whose option is called otherwise.
OPTIONS = {
    "model": MODEL,
    "begin_with": FROM,
    "library": "--",
    "prompts_hash": "prompts whose hash is",
}


def check_output(settings: Settings) -> None:
    """Refuse a folder that holds something else, or ours with other settings.

    Raises:
        ConfigError: naming the first setting that differs.
    """
    place = Output(settings.output)
    shown = str(settings.output)
    if settings.output.exists() and not settings.output.is_dir():
        raise ConfigError(output.OPTION, shown, "is a file; valid: a new folder")
    if not place.settings.exists():
        ours = (place.lock.name, f"{place.settings.name}{TEMPORARY}")
        found = settings.output.iterdir() if settings.output.is_dir() else ()
        if any(path.name not in ours for path in found):
            problem = "holds something else; valid: a new or empty folder, or one of train's own"
            raise ConfigError(output.OPTION, shown, problem)
        return
    try:
        earlier = Settings.load(place.settings)
    except (ValueError, KeyError, TypeError):
        problem = f"{place.settings.name} cannot be read; valid: a new folder"
        raise ConfigError(output.OPTION, shown, problem) from None
    before, now = _compared(earlier), _compared(settings)
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            what = OPTIONS.get(name, flag_of(name))
            problem = (
                f"was begun with {what} {_said(before.get(name))}, now {_said(now.get(name))}; "
                "valid: the same, or a new folder"
            )
            raise ConfigError(output.OPTION, shown, problem)


def _compared(settings: Settings) -> dict[str, Any]:
    """Return all that a second start has to ask for again, by name."""
    found = asdict(settings)
    for name in ("output", "checkpoint_minutes"):
        found.pop(name)
    engine = found.pop("engine")
    found.update(found.pop("sampling"))
    found.update({name: value for name, value in engine.items() if name not in MAY_DIFFER})
    return found


def _said(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
