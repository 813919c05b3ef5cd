"""The record that describes a kind of device to the rest of the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm_ascend_spec.config.engine import SpecInput


def no_problem() -> str | None:
    """Return None: nothing is missing."""
    return None


@dataclass(frozen=True, kw_only=True)
class Device:
    """One kind of device. Making one imports neither torch nor vLLM.

    Attributes:
        name: what vLLM and PyTorch call it, e.g. ``npu``.
        about: what to call it in a message, e.g. ``an Ascend NPU``.
        find: tells whether there is one that this build of vLLM can use.
        platform: qualified name of its platform class; None if it has none.
        family: family of the draft loops that run on it, see ``Method.drafters``.
        max_drafts: the largest K.
        max_tree_drafts: most drafts of a tree; None if trees are not possible on it.
        tree_target_cause: returns what in a target's config.json keeps drafts from being a tree
            on it besides what does everywhere, or None.
        checks: rules about the options of an engine on it; each raises ``ConfigError``.
        host_problem: returns what is missing, judged only by what is installed, or None.
        host_warning: returns a problem that does not keep an engine from starting, or None.
        import_problem: returns why its libraries cannot be imported, or None; may be slow.
        import_problem_elsewhere: the same, checked in a separate process.
        preload: a library to put in ``LD_PRELOAD`` for its worker if it is installed.
        has_graphs: whether vLLM captures graphs on it.
        has_graphs_by_k: whether full graphs are captured for each K where K changes.
        reason_for_greedy: returns what keeps the drafts of a request from being sampled on it, or
            None.
        whole_drafts: methods whose draft may be whole on every device although the target is
            split.
    """

    name: str
    about: str
    find: Callable[[], bool]
    platform: str | None
    family: str
    max_drafts: int
    max_tree_drafts: int | None = None
    tree_target_cause: Callable[[Mapping[str, Any]], str | None] | None = None
    checks: tuple[Callable[[SpecInput], None], ...] = ()
    host_problem: Callable[[], str | None] = no_problem
    host_warning: Callable[[], str | None] = no_problem
    import_problem: Callable[[], str | None] = no_problem
    import_problem_elsewhere: Callable[[], str | None] = no_problem
    preload: str | None = None
    has_graphs: bool = True
    has_graphs_by_k: bool = False
    reason_for_greedy: Callable[[SpecInput], str | None] | None = None
    whole_drafts: frozenset[str] = frozenset()
