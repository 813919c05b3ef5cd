"""Rules about several options at once, in the order in which they are looked at."""

from __future__ import annotations

from collections.abc import Callable

from vllm_ascend_spec.config.ascend import check_for_npu
from vllm_ascend_spec.config.cpu import check_for_cpu
from vllm_ascend_spec.config.custom_class import check_custom_class
from vllm_ascend_spec.config.draft_options import check_draft_options
from vllm_ascend_spec.config.engine import Request
from vllm_ascend_spec.config.ngram import check_ngram
from vllm_ascend_spec.config.rules import STANDARD, check_synthetic, resolve_rule
from vllm_ascend_spec.config.schedule import check_schedule
from vllm_ascend_spec.config.schema import SECTION
from vllm_ascend_spec.errors import ConfigError

# What a device's platform does not do, see platform/select.py for its names.
DEVICES: dict[str, Callable[[Request], None]] = {"npu": check_for_npu, "cpu": check_for_cpu}


def check_rule(request: Request) -> None:
    """Raise if the options that choose a rule contradict each other."""
    resolve_rule(request.spec.get("rejection_sample_method", STANDARD), request.section)
    check_synthetic(request.spec)


def check_draft_loop(request: Request) -> None:
    """Raise if a draft loop was chosen for a method that has none."""
    if "draft_loop" in request.section and not request.method.has_draft_loop:
        raise ConfigError(
            f"additional_config.{SECTION}.draft_loop",
            request.options.draft_loop,
            f"has no effect with method {request.method.name!r}, which has no draft model",
        )


def check_device(request: Request) -> None:
    """Raise if the device's platform would ignore an option or cannot do it."""
    if (check := DEVICES.get(request.engine.device or "")) is not None:
        check(request)


def check_class(request: Request) -> None:
    """Raise unless the class of method ``custom_class`` can be used."""
    if request.method.name == "custom_class":
        check_custom_class(request.spec)


# Each raises ConfigError. Those that read files or import a person's code come last.
COMBINATIONS: tuple[Callable[[Request], None], ...] = (
    lambda request: check_schedule(request.spec),
    check_rule,
    check_draft_loop,
    lambda request: check_ngram(request.spec),
    check_device,
    check_draft_options,
    check_class,
)
