"""Trees of drafts: how they are asked for, and where they are not possible.

``additional_config.ascend_spec.tree`` is a number of drafts, whose shape follows from how often
drafts of each rank are taken, or ``"5x3"``: a chain of 5, and at each place 2 drafts beside it.
``speculative_config.speculative_token_tree`` is a list of paths, as in vLLM up to 0.11.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Mapping
from typing import Any

from vllm_ascend_spec.config import tree_shape
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.rules import PROBABILISTIC
from vllm_ascend_spec.config.schema import ADAPTIVE, SECTION, SEEDED, STOCK
from vllm_ascend_spec.config.schema import TREE_SIZES as SIZES
from vllm_ascend_spec.config.tree_shape import Path, Tree
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.upstream.limits import NO_TREES

NAME, PATHS = "tree", "speculative_token_tree"
OPTION, OLD_OPTION = f"additional_config.{SECTION}.{NAME}", f"speculative_config.{PATHS}"
NUM_DRAFTS = "num_speculative_tokens"
# What a method's trees look like, see ``Method.trees``.
ANY, FOUND = "any", "found"
# A message shows no longer tree.
MOST_SHOWN = 8


def read_paths(value: Any) -> list[Path] | None:
    """Return the paths of a list, or of its text as in vLLM's documents; None if it has none."""
    try:
        listed = literal_eval(value) if isinstance(value, str) else value
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(listed, list | tuple) or not listed:
        return None
    paths = [tuple(path) if isinstance(path, list | tuple) else (path,) for path in listed]
    are_ranks = all(type(rank) is int and rank >= 0 for path in paths for rank in path)
    return paths if are_ranks and all(paths) else None


def has_tree(request: SpecInput) -> bool:
    """Tell whether a tree is asked for."""
    return request.options.tree is not None or request.spec.get(PATHS) is not None


def with_size(spec: dict[str, Any], tree: int | str | None) -> dict[str, Any]:
    """Return a speculative config with the number of drafts of its tree, if it names none."""
    if spec.get(NUM_DRAFTS) is not None:
        return spec
    size = size_of(tree, spec.get(PATHS))
    return spec if size is None else {**spec, NUM_DRAFTS: size}


def size_of(tree: int | str | None, paths: Any) -> int | None:
    """Return the number of drafts of a tree, however it is asked for; None without one."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str) and (sizes := SIZES.fullmatch(tree)) is not None:
        return int(sizes[1]) * int(sizes[2])
    listed = read_paths(paths)
    return None if listed is None else len(listed)


def tree_of(request: SpecInput) -> Tree | None:
    """Return the nodes of the tree; None without one, or if the drafter finds its own."""
    if not has_tree(request) or request.method.trees == FOUND:
        return None
    asked = request.options.tree
    if asked is None:
        return tree_shape.in_order(read_paths(request.spec[PATHS]) or ())
    if isinstance(asked, int):
        return tree_shape.best_tree(asked, deepest_of(request), is_comb=makes_combs(request))
    sizes = SIZES.fullmatch(asked)
    assert sizes is not None
    return tree_shape.comb(int(sizes[1]), int(sizes[2]))


def is_shaped(request: SpecInput) -> bool:
    """Tell whether the tree's shape follows from what is accepted: a number was asked for."""
    return isinstance(request.options.tree, int) and request.method.trees == ANY


def makes_combs(request: SpecInput) -> bool:
    """Tell whether drafts follow the principal chain alone: our loop there has no other passes."""
    device = request.engine.device
    return request.method.has_draft_loop and device is not None and device.family == "ascend"


def steps_of(request: SpecInput) -> int:
    """Return how many drafts follow each other: K, or less in a tree."""
    tree = tree_of(request)
    return request.spec[NUM_DRAFTS] if tree is None else max(map(len, tree))


def deepest_of(request: SpecInput) -> int | None:
    """Return how many drafts can follow each other; None for any number."""
    count_of = request.method.most_steps
    return None if count_of is None else count_of(request)


def check_tree(request: SpecInput) -> None:
    """Refuse what is no tree, and trees where they are not possible.

    Raises:
        ConfigError: naming the option, its value and the nearest tree that is valid.
    """
    if not has_tree(request):
        return
    option, value = asked_for(request)
    ours = request.options.tree
    if ours is not None and request.spec.get(PATHS) is not None:
        raise ConfigError(option, value, f"contradicts {OLD_OPTION}; give one of the two")
    if request.method.trees is None:
        problem = f"not possible with method {request.method.name!r}, which drafts chains"
        raise ConfigError(option, value, f"{problem}; leave it out")
    if (cause := cause_against_trees(request)) is not None:
        raise ConfigError(option, value, f"not possible with {cause}")
    if ours is None:
        check_paths(value)
    check_place(request, option, value)
    size, drafts = size_of(ours, request.spec.get(PATHS)), request.spec[NUM_DRAFTS]
    if size != drafts:
        problem = f"has {size} drafts and contradicts {NUM_DRAFTS}={drafts}; leave that out"
        raise ConfigError(option, value, f"{problem}, or write {NAME}={drafts}")


def asked_for(request: SpecInput) -> tuple[str, Any]:
    """Return the option that asks for a tree, and its value."""
    ours = request.options.tree
    return (OPTION, ours) if ours is not None else (OLD_OPTION, request.spec.get(PATHS))


def sources_of(request: SpecInput) -> dict[str, str]:
    """Return where values come from that a tree decides."""
    if not has_tree(request):
        return {}
    return dict.fromkeys(
        ("tree", "has_trees", "shapes_tree", "rule", "seeds_for"), asked_for(request)[0]
    )


def check_paths(value: Any) -> None:
    """Refuse a list of paths that is no tree.

    Raises:
        ConfigError: two paths are equal, or the parent of one is missing.
    """
    paths = read_paths(value) or []
    missing = tree_shape.missing_parents(paths)
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise ConfigError(OLD_OPTION, value, f"has {twice} twice; {nearest(set(paths) | missing)}")
    if missing:
        problem = f"lacks {min(missing)}, which others follow"
        raise ConfigError(OLD_OPTION, value, f"{problem}; {nearest(set(paths) | missing)}")


def check_place(request: SpecInput, option: str, value: Any) -> None:
    """Refuse a tree that the method cannot draft, or that is larger than the device verifies.

    Raises:
        ConfigError: naming the nearest tree that is valid.
    """
    kind, device = request.method.trees, request.engine.device
    name = request.method.name
    most = None if device is None else device.max_tree_drafts
    size = size_of(request.options.tree, request.spec.get(PATHS)) or 0
    if most is not None and size > most:
        about = f"has {size} drafts, and {device.about if device else ''} verifies up to {most}"
        raise ConfigError(option, value, f"{about}; valid: {NAME}={most}")
    if kind == FOUND:
        if not isinstance(value, int):
            problem = f"method {name!r} finds its trees in the text"
            raise ConfigError(option, value, f"{problem}; valid: {NAME}={size}")
        return
    tree = tree_of(request) or ()
    deepest = deepest_of(request)
    if deepest is not None and max(map(len, tree)) > deepest:
        cut = [path for path in tree if len(path) <= deepest]
        problem = f"is {max(map(len, tree))} drafts deep, and this draft makes {deepest}"
        raise ConfigError(option, value, f"{problem}; {nearest(cut)}")
    if makes_combs(request) and not tree_shape.forms_comb(tree):
        assert device is not None
        cut = [path for path in tree if tree_shape.is_principal(path[:-1])]
        problem = f"method {name!r} drafts nothing after siblings on {device.about} yet"
        raise ConfigError(option, value, f"{problem}; {nearest(cut)}")


def nearest(paths: Any) -> str:
    """Return what to write instead."""
    tree = tree_shape.in_order(paths)
    shown = list(tree) if len(tree) <= MOST_SHOWN else f"{NAME}={len(tree)}"
    return f"valid: {shown}"


def cause_against_trees(request: SpecInput) -> str | None:
    """Return what keeps drafts from being a tree, and what to do about it; None if nothing does."""
    if NO_TREES is not None:
        return NO_TREES
    return next((cause for cause, is_there in CAUSES.items() if is_there(request)), None)


def _is_elsewhere(request: SpecInput) -> bool:
    device = request.engine.device
    return device is not None and device.max_tree_drafts is None


def _has_graphs_of_prompts(request: SpecInput) -> bool:
    engine = request.engine
    is_npu = engine.device is not None and engine.device.family == "ascend"
    return is_npu and engine.cudagraph_mode == "FULL" and not engine.enforce_eager


CAUSES: Mapping[str, Callable[[SpecInput], bool]] = {
    "this device yet, only with a CPU or an Ascend NPU": _is_elsewhere,
    "cudagraph_mode='FULL' on an NPU, where all requests of a graph have equally many rows; write "
    "'FULL_DECODE_ONLY'": _has_graphs_of_prompts,
    f"draft_length={ADAPTIVE!r} yet; leave one out": lambda request: (
        request.options.draft_length == ADAPTIVE
    ),
    "a K by batch size; leave it out": lambda request: (
        request.spec.get("num_speculative_tokens_per_batch_size") is not None
        or request.spec.get("disable_by_batch_size") is not None
    ),
    f"verify_rule other than {SEEDED!r}, the rule of trees; leave it out": lambda request: (
        request.section.get("verify_rule", SEEDED) != SEEDED
    ),
    "rejection_sample_method; leave it out": lambda request: (
        request.spec.get("rejection_sample_method", "standard") != "standard"
    ),
    "sampled drafts, whose siblings would have to be verified in the order of their draws; write "
    "draft_sample_method='greedy'": lambda request: (
        request.spec.get("draft_sample_method") == PROBABILISTIC
    ),
    f"draft_loop={STOCK!r}; leave it out": lambda request: request.options.draft_loop == STOCK,
    "parallel_drafting yet; leave it out": lambda request: bool(
        request.spec.get("parallel_drafting")
    ),
    "use_heterogeneous_vocab yet; leave one out": lambda request: bool(
        request.spec.get("use_heterogeneous_vocab")
    ),
    "use_local_argmax_reduction, which knows the likeliest token alone; leave it out": (
        lambda request: bool(request.spec.get("use_local_argmax_reduction"))
    ),
    "a KV connector yet, which would take rejected keys; leave one out": lambda request: (
        request.engine.kv_connector is not None
    ),
}
