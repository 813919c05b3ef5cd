"""Build the method record of ``hybrid``: that of the model's method plus suffix trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.checkpoint.folder import find_folder
from vllm_ascend_spec.config.draft_options import MODEL, check_name
from vllm_ascend_spec.config.method import Method
from vllm_ascend_spec.errors import CheckpointError, ConfigError
from vllm_ascend_spec.methods import suffix
from vllm_ascend_spec.methods.suffix.checks import check_suffix

NAME, OPTION = "hybrid", "hybrid_model_method"
DRAFTER = "vllm_ascend_spec.methods.hybrid.drafter:HybridMixin"


def hybrid_of(method: Method) -> Method:
    """Return the method ``hybrid`` made of suffix trees and a method with a draft model.

    The settings of the draft model are those of its own method. vLLM is told that method's name,
    so it prepares KV cache and graphs for the draft model.
    """
    return replace(
        method,
        name=NAME,
        about="suffix trees beside a draft model, by what each promises",
        options=method.options | suffix.OPTIONS | {OPTION},
        vllm_method=method.vllm_method or method.name,
        checks=(*method.checks, check_suffix),
        drafts_on_host=True,
        drafters=with_trees(method.drafters),
        drafters_by_type={
            model_type: with_trees(drafters)
            for model_type, drafters in method.drafters_by_type.items()
        },
    )


def with_trees(drafters: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the bases of drafters, by family, with suffix trees before them."""
    return {family: (DRAFTER, *bases) for family, bases in drafters.items()}


def hybrid_for(spec: Mapping[str, Any], methods: Mapping[str, Method]) -> Method:
    """Return the record for a speculative config.

    Raises:
        ConfigError: the model's method has no draft model, or cannot be determined.
    """
    possible = {m.name: m for m in methods.values() if m.has_draft_loop and m.for_spec is None}
    named = spec.get(OPTION)
    if named is None:
        return hybrid_of(_told_by_checkpoint(spec, possible))
    if not isinstance(named, str) or named not in possible:
        raise _refusal(named, "is no method with a draft model", possible)
    return hybrid_of(possible[named])


def _told_by_checkpoint(spec: Mapping[str, Any], possible: Mapping[str, Method]) -> Method:
    """Return the only method that accepts the draft's checkpoint, which must be on this machine."""
    model = spec.get("model")
    if model is None:  # any of these methods will report the missing model
        return next(method for method in possible.values() if "model" in method.required)
    check_name(MODEL, model)
    folder = find_folder(MODEL, model, spec.get("revision"))
    if folder is None:
        raise _refusal(None, f"has to be named: {model!r} is not on this machine", possible)
    draft = Draft(MODEL, model, folder)
    found = [method for method in possible.values() if _takes(method, draft)]
    if len(found) != 1:
        names = " and ".join(repr(method.name) for method in found) or "none"
        raise _refusal(None, f"has to be named: {names} can take {model!r}", possible)
    return found[0]


def _takes(method: Method, draft: Draft) -> bool:
    if method.check_checkpoint is None:
        return False
    try:
        method.check_checkpoint(draft)
    except CheckpointError:
        return False
    return True


def _refusal(value: Any, problem: str, possible: Mapping[str, Method]) -> ConfigError:
    valid = ", ".join(map(repr, possible))
    return ConfigError(f"speculative_config.{OPTION}", value, f"{problem}; valid: {valid}")
