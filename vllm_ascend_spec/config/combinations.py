"""Rules about several options at once, in the order in which they are checked."""

from __future__ import annotations

from collections.abc import Callable

from vllm_ascend_spec.config.capture import check_capture
from vllm_ascend_spec.config.draft_length import check_draft_length
from vllm_ascend_spec.config.draft_loop import check_draft_loop
from vllm_ascend_spec.config.draft_options import check_draft_options
from vllm_ascend_spec.config.draft_tree import has_tree
from vllm_ascend_spec.config.draft_window import check_draft_window
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.model_runner import check_model_runner
from vllm_ascend_spec.config.page import check_page
from vllm_ascend_spec.config.parallel_drafting import check_one_pass
from vllm_ascend_spec.config.pipeline import check_pipeline
from vllm_ascend_spec.config.rules import STANDARD, check_synthetic, resolve_rule
from vllm_ascend_spec.config.schedule import check_schedule
from vllm_ascend_spec.config.tree_rules import check_tree
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.upstream.limits import WITHOUT_METHODS

METHOD = "speculative_config.method"


def check_rule(request: SpecInput) -> None:
    """Raise if the options that choose a rule contradict each other."""
    resolve_rule(request.spec.get("rejection_sample_method", STANDARD), request.section)
    check_synthetic(request.spec)


def check_family(request: SpecInput) -> None:
    """Raise if the method, or this version, has no drafter for the device's draft loops."""
    device, method = request.engine.device, request.method
    if device is None:
        return
    if reason := WITHOUT_METHODS.get((method.name, device.family)):
        raise ConfigError(METHOD, method.name, f"not possible with {reason}")
    if device.family not in method.drafters:
        families = ", ".join(map(repr, method.drafters)) or "none"
        raise ConfigError(
            METHOD,
            method.name,
            f"not supported on {device.about}, whose family of draft loops is "
            f"{device.family!r}; it has drafters for: {families}",
        )


def check_num_drafts(request: SpecInput) -> None:
    """Raise if K is more than the device can verify in one step."""
    device, wanted = request.engine.device, request.spec["num_speculative_tokens"]
    if has_tree(request):
        return  # whose size is checked
    if device is not None and wanted > device.max_drafts:
        raise ConfigError(
            "speculative_config.num_speculative_tokens",
            wanted,
            f"valid: a whole number from 1 to {device.max_drafts} on {device.about}",
        )


def check_scheduling(request: SpecInput) -> None:
    """Raise if steps are to be scheduled ahead but the method needs each step's tokens."""
    if request.method.drafts_on_host and request.engine.async_scheduling:
        raise ConfigError(
            "--async-scheduling",
            True,
            f"not possible with method {request.method.name!r}, which needs the tokens of the "
            "previous step to draft; leave it out",
        )


Rule = Callable[[SpecInput], None]
# Each raises what is wrong, as a ConfigError.
RULES: tuple[Rule, ...] = (
    check_family,
    check_tree,
    check_num_drafts,
    check_draft_length,
    check_schedule,
    check_scheduling,
    check_page,
    check_rule,
    check_draft_loop,
    check_draft_window,
    check_capture,
    check_one_pass,
    check_model_runner,
    check_pipeline,
)
# For a VllmConfig that was built by hand: vLLM has already read the checkpoint, filled in defaults
# and computed synthetic rates.
OF_BUILT: tuple[Rule, ...] = (
    check_family,
    check_tree,
    check_num_drafts,
    check_schedule,
    check_draft_loop,
    check_draft_window,
    check_capture,
    check_one_pass,
    check_pipeline,
)


def rules_of(request: SpecInput) -> tuple[Rule, ...]:
    """Return every rule about a request; last those that read files or import a user's code."""
    return (*RULES, *device_rules(request), check_draft_options, *request.method.checks)


def device_rules(request: SpecInput) -> tuple[Rule, ...]:
    """Return the rules of the device's platform."""
    return () if request.engine.device is None else tuple(request.engine.device.checks)
