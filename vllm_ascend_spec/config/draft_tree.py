"""Trees of drafts: how they are asked for, and what is made of it; ``tree_rules.py`` checks it.

``additional_config.ascend_spec.tree`` is a number of drafts, whose shape follows from how often
drafts of each rank are accepted, or ``"5x3"``: a chain of 5, and at each place 2 drafts beside it.
``speculative_config.speculative_token_tree`` is a list of paths, as in vLLM up to 0.11.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_ascend_spec.config import tree_shape
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.parallel_drafting import in_one_pass
from vllm_ascend_spec.config.schema import SECTION
from vllm_ascend_spec.config.tree_shape import SIZES, Tree, read_paths, size_of

NAME, PATHS = "tree", "speculative_token_tree"
OPTION, OLD_OPTION = f"additional_config.{SECTION}.{NAME}", f"speculative_config.{PATHS}"
NUM_DRAFTS = "num_speculative_tokens"
# Attribute of vLLM's DraftTokenIds. Pickling keeps it.
PARENTS = "ascend_spec_parents"
# What a method's trees look like, see ``Method.trees``.
ANY, FOUND = "any", "found"


def has_tree(request: SpecInput) -> bool:
    """Tell whether a tree is asked for."""
    return request.options.tree is not None or request.spec.get(PATHS) is not None


def with_size(spec: dict[str, Any], tree: int | str | None) -> dict[str, Any]:
    """Return a speculative config with the number of drafts of its tree, if it names none."""
    if spec.get(NUM_DRAFTS) is not None:
        return spec
    size = size_of(tree, spec.get(PATHS))
    return spec if size is None else {**spec, NUM_DRAFTS: size}


def tree_of(request: SpecInput) -> Tree | None:
    """Return the nodes of the tree; None without one, or if the drafter finds its own."""
    if not has_tree(request) or request.method.trees == FOUND:
        return None
    asked = request.options.tree
    if asked is None:
        return tree_shape.in_order(read_paths(request.spec[PATHS]) or ())
    if isinstance(asked, int):
        tree = tree_shape.best_tree(asked, deepest_of(request), is_comb=saves_passes(request))
        return tree_shape.branched(tree) if is_shaped(request) else tree
    sizes = SIZES.fullmatch(asked)
    assert sizes is not None
    return tree_shape.comb(int(sizes[1]), int(sizes[2]))


def is_shaped(request: SpecInput) -> bool:
    """Tell whether the tree's shape follows from what is accepted: a number was asked for.

    Only on a CPU the host learns that without a wait; elsewhere graphs have one shape, too.
    """
    is_number, device = isinstance(request.options.tree, int), request.engine.device
    is_on_cpu = device is not None and device.name == "cpu"
    return is_number and request.method.trees == ANY and is_on_cpu


def saves_passes(request: SpecInput) -> bool:
    """Tell whether a number of drafts is shaped for few passes of a draft model: as a comb.

    Of 15 drafts by common rates the best tree takes 10 passes, the best comb 7. It is expected to
    yield 3% less, and each pass reads the draft's weights and starts its kernels on an NPU.
    """
    return request.method.has_draft_loop and not in_one_pass(request) and _is_on_npu(request)


def _is_on_npu(request: SpecInput) -> bool:
    device = request.engine.device
    return device is not None and device.family == "ascend"


def steps_of(request: SpecInput) -> int:
    """Return how many drafts follow each other: K, or less in a tree."""
    tree = tree_of(request)
    return request.spec[NUM_DRAFTS] if tree is None else tree_shape.depth_of(tree)


def deepest_of(request: SpecInput) -> int | None:
    """Return how many drafts can follow each other; None for any number."""
    count_of = request.method.most_steps
    return None if count_of is None else count_of(request)


def asked_for(request: SpecInput) -> tuple[str, Any]:
    """Return the option that asks for a tree, and its value."""
    ours = request.options.tree
    return (OPTION, ours) if ours is not None else (OLD_OPTION, request.spec.get(PATHS))


def sources_of(request: SpecInput) -> dict[str, str]:
    """Return where values come from that a tree decides."""
    if not has_tree(request):
        return {}
    return dict.fromkeys(
        ("tree", "has_trees", "shapes_tree", "max_k", "rule", "seeds_for"), asked_for(request)[0]
    )


def attach_parents(draft_token_ids: Any, parents: Sequence[Sequence[int]]) -> None:
    """Tell the scheduler how the drafts of each request hang together.

    Args:
        draft_token_ids: vLLM's ``DraftTokenIds`` of a step.
        parents: for each request, the place of each draft's parent; -1 for those that follow the
            text.
    """
    setattr(draft_token_ids, PARENTS, parents)


def parents_beside(draft_token_ids: Any) -> Sequence[Sequence[int]] | None:
    """Return what :func:`attach_parents` attached; None without."""
    found: Sequence[Sequence[int]] | None = getattr(draft_token_ids, PARENTS, None)
    return found
