"""What is no tree of drafts, and where trees are not possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint.config_json import NAME as CONFIG
from vllm_ascend_spec.checkpoint.config_json import read_config, text_of
from vllm_ascend_spec.checkpoint.errors import blame
from vllm_ascend_spec.checkpoint.recurrent import with_state
from vllm_ascend_spec.config import tree_shape
from vllm_ascend_spec.config.device import Device
from vllm_ascend_spec.config.draft_tree import (
    FOUND,
    NAME,
    NUM_DRAFTS,
    OLD_OPTION,
    PATHS,
    asked_for,
    deepest_of,
    has_tree,
    tree_of,
)
from vllm_ascend_spec.config.engine import SpecInput
from vllm_ascend_spec.config.rules import PROBABILISTIC, STANDARD
from vllm_ascend_spec.config.schedule import LIMIT
from vllm_ascend_spec.config.schedule import NAME as SCHEDULE
from vllm_ascend_spec.config.schema import ADAPTIVE, SEEDED, STOCK
from vllm_ascend_spec.config.tree_shape import read_paths, size_of
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.upstream.limits import NO_TREES

# Rotary sections of images; the second name is older.
MROPE = ("mrope_section", "xdrope_section")
# A message shows no longer tree.
MOST_SHOWN = 8


def check_tree(request: SpecInput) -> None:
    """Refuse what is no tree, and trees where they are not possible.

    Raises:
        ConfigError: naming the option, its value and what is valid, the nearest tree if there is
            one.
    """
    if not has_tree(request):
        return
    option, value = asked_for(request)
    if (cause := cause_against_trees(request)) is not None:
        raise ConfigError(option, value, f"not possible with {cause}")
    check_paths(request)
    check_size(request)
    check_shape(request)


def check_paths(request: SpecInput) -> None:
    """Refuse a list of paths that is no tree, or beside another tree.

    Raises:
        ConfigError: two trees are given, two paths are equal, or the parent of one is missing.
    """
    value = request.spec.get(PATHS)
    if value is None:
        return
    if request.options.tree is not None:
        raise ConfigError(OLD_OPTION, value, f"contradicts {NAME!r}; give one of the two")
    paths = read_paths(value) or []
    missing = tree_shape.missing_parents(paths)
    valid = nearest({*paths, *missing})
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ConfigError(OLD_OPTION, value, f"has {twice} twice; {valid}")
    if missing:
        raise ConfigError(OLD_OPTION, value, f"lacks {min(missing)}, which others follow; {valid}")


def check_size(request: SpecInput) -> None:
    """Refuse a tree that is larger than the device verifies, or not as large as K.

    Raises:
        ConfigError: naming the size.
    """
    option, value = asked_for(request)
    size, device = size_of(request.options.tree, request.spec.get(PATHS)), request.engine.device
    most = None if device is None else device.max_tree_drafts
    if device is not None and most is not None and size is not None and size > most:
        problem = f"has {size} drafts, and {device.about} verifies up to {most}"
        raise ConfigError(option, value, f"{problem}; valid: {NAME}={most}")
    if size != (drafts := request.spec[NUM_DRAFTS]):
        problem = f"has {size} drafts and contradicts {NUM_DRAFTS}={drafts}; leave that out"
        raise ConfigError(option, value, f"{problem}, or write {NAME}={drafts}")


def check_shape(request: SpecInput) -> None:
    """Refuse a shape that the method cannot draft.

    Raises:
        ConfigError: naming the nearest tree that it can.
    """
    option, value = asked_for(request)
    name = request.method.name
    if request.method.trees == FOUND:
        if not isinstance(value, int):
            valid = f"valid: {NAME}={size_of(value)}"
            raise ConfigError(
                option, value, f"method {name!r} finds its trees in the text; {valid}"
            )
        return
    tree, deepest = tree_of(request) or (), deepest_of(request)
    depth = tree_shape.depth_of(tree)
    if deepest is not None and depth > deepest:
        valid = nearest(path for path in tree if len(path) <= deepest)
        problem = f"is {depth} drafts deep, and this draft makes {deepest}"
        raise ConfigError(option, value, f"{problem}; {valid}")


def nearest(paths: Iterable[tree_shape.Path]) -> str:
    """Return what to write instead."""
    tree = tree_shape.in_order(paths)
    return f"valid: {list(tree) if len(tree) <= MOST_SHOWN else f'{NAME}={len(tree)}'}"


def cause_against_trees(request: SpecInput) -> str | None:
    """Return what keeps drafts from being a tree, and what to do about it; None if nothing does."""
    if NO_TREES is not None:
        return NO_TREES
    if request.method.trees is None:
        return f"method {request.method.name!r}, which drafts chains; leave it out"
    device = request.engine.device
    if device is not None and device.max_tree_drafts is None:
        return f"{device.about} yet; leave it out"
    options = (cause for cause, is_there in CAUSES.items() if is_there(request))
    return next(options, None) or cause_in_target(request.model, device)


def cause_in_target(model: str | None, device: Device | None) -> str | None:
    """Return what in a target's folder keeps drafts from being a tree; None if nothing does."""
    if model is None or not (Path(model) / CONFIG).is_file():
        return None
    with blame("model", model):
        return cause_in_config(read_config(Path(model)), device)


def cause_in_config(config: Mapping[str, Any], device: Device | None) -> str | None:
    """Return what in a target's config keeps drafts from being a tree; None if nothing does."""
    text = text_of(config)
    found = {
        "multi-head latent attention": text.get("kv_lora_rank") is not None,
        "layers that keep a state": with_state(config) is not None,
        "positions of images (M-RoPE)": has_mrope(config),
    }
    cause = next((name for name, is_there in found.items() if is_there), None)
    if cause is None and device is not None and device.tree_target_cause is not None:
        cause = device.tree_target_cause(text)
    return None if cause is None else f"{cause} yet; leave it out"


def has_mrope(config: Mapping[str, Any]) -> bool:
    """Tell whether rows have several positions, as vllm/transformers_utils/config.py does.

    What says so is in the rotary parameters, which may be those of each kind of layer, of the
    config, of its text part or of its thinker's.
    """
    own = (config.get(name) for name in MROPE)
    inner = (value for value in config.values() if isinstance(value, Mapping))
    return any(isinstance(section, list | tuple) for section in own) or any(map(has_mrope, inner))


def _has_graphs_of_prompts(request: SpecInput) -> bool:
    engine = request.engine
    is_npu = engine.device is not None and engine.device.family == "ascend"
    return is_npu and engine.cudagraph_mode == "FULL" and not engine.enforce_eager


def _gives(name: str) -> Callable[[SpecInput], bool]:
    return lambda request: bool(request.spec.get(name))


# What to say of a request, and whether it is so.
CAUSES: Mapping[str, Callable[[SpecInput], bool]] = {
    "cudagraph_mode='FULL' on an NPU, where all requests of a graph have equally many rows; write "
    "'FULL_DECODE_ONLY'": _has_graphs_of_prompts,
    "a K by batch size yet; leave one out": lambda request: (
        # ``adaptive`` has one as a placeholder.
        request.options.draft_length != ADAPTIVE
        and (_gives(SCHEDULE)(request) or _gives(LIMIT)(request))
    ),
    f"a verify_rule other than {SEEDED!r}, the rule of trees; leave it out": lambda request: (
        request.section.get("verify_rule", SEEDED) != SEEDED
    ),
    f"a rejection_sample_method other than {STANDARD!r}; leave it out": lambda request: (
        request.spec.get("rejection_sample_method", STANDARD) != STANDARD
    ),
    "sampled drafts, whose siblings would have to be verified in the order of their draws; write "
    "draft_sample_method='greedy'": lambda request: (
        request.spec.get("draft_sample_method") == PROBABILISTIC
    ),
    f"draft_loop={STOCK!r}, which makes chains; leave it out": lambda request: (
        request.options.draft_loop == STOCK
    ),
    "use_heterogeneous_vocab yet; leave one out": _gives("use_heterogeneous_vocab"),
    "use_local_argmax_reduction, which finds the likeliest token alone; leave it out": _gives(
        "use_local_argmax_reduction"
    ),
    "a KV connector yet, which would take rejected keys; leave one out": lambda request: (
        request.engine.kv_connector is not None
    ),
}
