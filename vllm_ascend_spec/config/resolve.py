"""Resolve a checked request to the one record that every part reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.checkpoint.folder import doubts_about
from vllm_ascend_spec.config import draft_length, draft_sampling, draft_tree, draft_window
from vllm_ascend_spec.config.capture import GIVEN, SIZES, capture_warnings, has_draft_rows
from vllm_ascend_spec.config.draft_length import LENGTH, lengths_of
from vllm_ascend_spec.config.draft_options import MODEL, TARGET
from vllm_ascend_spec.config.draft_sampling import draft_sample_method
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.resolved import DEFAULT, SpecConfig
from vllm_ascend_spec.config.rules import STANDARD, resolve_rule, rule_warnings, seeds_for
from vllm_ascend_spec.config.schedule import LIMIT, option_of
from vllm_ascend_spec.config.schedule import NAME as SCHEDULE
from vllm_ascend_spec.config.schema import ADAPTIVE, SECTION, SEEDED, WITHOUT_SPECULATION
from vllm_ascend_spec.config.speculators_format import SOURCE as HEAD
from vllm_ascend_spec.errors import ConfigError

SPEC, OURS = "speculative_config", f"additional_config.{SECTION}"
# Fields of the record, and the option of speculative_config that each has its value from.
FROM_SPEC = {
    "method": "method",
    "max_k": "num_speculative_tokens",
    "schedule": SCHEDULE,
    "draft_sample_method": "draft_sample_method",
}
# Fields that have their value from our own option of the same name.
OF_THE_RECORD = (
    "verify_backend",
    "draft_loop",
    "spec_page",
    "capture",
    "capture_graphs",
    "capture_load",
    "collect_folder",
    "collect_max_bytes",
    "collect_rate",
    "collect_what",
)
RULE_METHOD = "rejection_sample_method"
RESOLVED = frozenset((*FROM_SPEC.values(), LIMIT, RULE_METHOD, draft_tree.PATHS))


def resolve(request: SpecInput) -> SpecConfig:
    """Return the record of a request that has passed every check."""
    spec, method, device = request.spec, request.method, request.engine.device
    rule_method = spec.get(RULE_METHOD) or STANDARD
    rule = resolve_rule(rule_method, request.section)
    drafts = draft_sample_method(request)
    if draft_tree.has_tree(request):
        rule = SEEDED
    rows = spec.get(SCHEDULE)
    return SpecConfig(
        device=device.name if device is not None else None,
        family=device.family if device is not None else None,
        method=method.name,
        vllm_method=method.vllm_method or method.name,
        drafter=method.drafters.get(device.family, ()) if device is not None else (),
        drafters_by_type={
            model_type: drafters.get(device.family, ())
            for model_type, drafters in method.drafters_by_type.items()
        }
        if device is not None
        else {},
        max_k=spec["num_speculative_tokens"],
        schedule=None if rows is None else tuple(tuple(row) for row in rows),
        draft_length=draft_length.draft_length_of(request),
        draft_lengths=lengths_of(request),
        tree=draft_tree.tree_of(request),
        has_trees=draft_tree.has_tree(request),
        shapes_tree=draft_tree.is_shaped(request),
        draft_sample_method=drafts,
        rule=rule,
        seeds_for=seeds_for(rule, request.section, drafts),
        verify_backend=request.options.verify_backend,
        has_draft_model=method.needs_checkpoint,
        is_synchronous=method.drafts_on_host,
        draft_loop=request.options.draft_loop if method.has_draft_loop else None,
        draft_window=draft_window.draft_window_of(request),
        capture=GIVEN if request.engine.capture_sizes else request.options.capture,
        capture_graphs=request.options.capture_graphs,
        capture_load=request.options.capture_load,
        spec_page=request.options.spec_page,
        collect_folder=request.options.collect_folder,
        collect_max_bytes=request.options.collect_max_bytes,
        collect_rate=request.options.collect_rate,
        collect_what=request.options.collect_what,
        has_draft_rows=has_draft_rows(request),
        options=_further_options(request),
        sources=_sources(request, rule_method),
        notes=_notes(request),
        warnings=(
            *request.warnings,
            *doubts_about({TARGET: request.model, MODEL: request.spec.get("model")}),
            *rule_warnings(rule, method, drafts),
            *(method.warn(request) if method.warn is not None else ()),
            *_scheduling_warnings(request),
            *draft_window.window_warnings(request),
            *capture_warnings(request),
        ),
    )


def require_speculation(section: Mapping[str, Any]) -> None:
    """Refuse options of ours that need speculation, in an engine without it.

    Raises:
        ConfigError: there are some.
    """
    idle = {name: value for name, value in section.items() if name not in WITHOUT_SPECULATION}
    if idle:
        raise ConfigError(OURS, idle, "has no effect without --speculative-config")


def _scheduling_warnings(request: SpecInput) -> list[str]:
    if not request.method.drafts_on_host or request.engine.async_scheduling is not None:
        return []
    name = request.method.name
    return [
        f"Asynchronous scheduling is off: method {name!r} needs the tokens of the previous step to "
        "draft."
    ]


def _notes(request: SpecInput) -> tuple[str, ...]:
    found = request.detected
    return () if found is None else (f"No method was given: {found.method!r}, {found.source}.",)


def _further_options(request: SpecInput) -> dict[str, Any]:
    return {
        name: value
        for name, value in request.spec.items()
        if name in request.method.options - RESOLVED and value is not None
    }


def _source_of_method(request: SpecInput) -> str:
    if request.detected is not None:
        return request.detected.source
    return HEAD if "method" in request.from_head else f"{SPEC}.method"


def _sources(request: SpecInput, rule_method: str) -> dict[str, str]:
    """Return where each value came from; values that are not named here are defaults."""
    spec, section, device = request.spec, request.section, request.engine.device
    method = _source_of_method(request)
    # These follow from the method.
    sources = dict.fromkeys(("vllm_method", "drafter", "drafters_by_type"), method)
    if device is not None:
        sources |= {"device": device.about, "family": device.about}
    for name, option in FROM_SPEC.items():
        sources[name] = f"{SPEC}.{option}" if spec.get(option) is not None else DEFAULT
        if option in request.from_head:
            sources[name] = HEAD
    sources["method"] = method
    if spec.get(SCHEDULE) is not None:
        sources["schedule"] = option_of(spec)
    if (source := draft_sampling.source_of(request)) is not None:
        sources["draft_sample_method"] = source
    sources |= _sources_of_length(request)
    for name in OF_THE_RECORD:
        sources[name] = f"{OURS}.{name}" if section.get(name) is not None else DEFAULT
    if not request.method.has_draft_loop:
        sources["draft_loop"] = f"method {request.method.name!r} has none"
    if draft_window.draft_window_of(request) is not None:
        sources["draft_window"] = draft_window.asked_for(request)[0]
    if request.engine.capture_sizes:
        sources["capture"] = SIZES
    if _further_options(request):
        sources["options"] = SPEC
    if rule_method != STANDARD:
        sources["rule"] = f"{SPEC}.{RULE_METHOD}"
    elif section.get("verify_rule") is not None:
        sources["rule"] = f"{OURS}.verify_rule"
    return sources | draft_tree.sources_of(request)


def _sources_of_length(request: SpecInput) -> dict[str, str]:
    found = {"draft_length": draft_length.source_of(request) or LENGTH}
    if lengths_of(request) is not None:
        found["draft_lengths"] = found["draft_length"]
    if request.options.draft_lengths is not None:
        found["draft_lengths"] = f"{OURS}.draft_lengths"
    if draft_length.draft_length_of(request) == ADAPTIVE:
        found["schedule"] = LENGTH  # vLLM is given one
    return found
