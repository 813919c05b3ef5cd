"""How drafts are picked: sampled where a request samples, or always the argmax."""

from __future__ import annotations

from vllm_ascend_spec.config.draft_tree import has_tree
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.rules import AUTO, GREEDY, PROBABILISTIC, SYNTHETIC

OPTION = "draft_sample_method"


def draft_sample_method(request: SpecInput) -> str:
    """Return the resolved value, one of vLLM's: ``greedy`` or ``probabilistic``.

    ``auto`` samples drafts for requests that sample, wherever that is possible, because sampled
    drafts are accepted more often (docs/choosing.md). Greedy requests always have greedy drafts.
    """
    asked = request.spec.get(OPTION) or AUTO
    if asked != AUTO:
        return str(asked)
    return PROBABILISTIC if reason_for_greedy(request) is None else GREEDY


def reason_for_greedy(request: SpecInput) -> str | None:
    """Return what keeps drafts from being sampled, or None."""
    method, spec, device = request.method, request.spec, request.engine.device
    if not method.can_sample_drafts:
        return f"method {method.name!r} cannot sample drafts"
    reasons = {
        "a tree": has_tree(request),
        "rejection_sample_method='synthetic'": spec.get("rejection_sample_method") == SYNTHETIC,
        "use_heterogeneous_vocab": bool(spec.get("use_heterogeneous_vocab")),
        "use_local_argmax_reduction": bool(spec.get("use_local_argmax_reduction")),
    }
    found = next((name for name, is_there in reasons.items() if is_there), None)
    if found is None and device is not None and device.reason_for_greedy is not None:
        found = device.reason_for_greedy(request)
    return None if found is None else f"not possible with {found}"


def source_of(request: SpecInput) -> str | None:
    """Return where the value came from if the user did not give it, or None."""
    if (request.spec.get(OPTION) or AUTO) != AUTO:
        return None
    reason = reason_for_greedy(request)
    return AUTO if reason is None else f"{AUTO}: {reason}"
