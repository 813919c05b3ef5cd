"""The speculation of an engine, resolved once: the one record that every part reads.

``resolve.py`` makes it before vLLM builds its configuration. It travels with that configuration to
every process, and records where each value came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.config.rules import NONE, SYNTHETIC
from vllm_ascend_spec.config.schema import BLOCK, FIXED, PLANNED, TOKEN, TOKENS
from vllm_ascend_spec.config.tree_shape import is_principal

if TYPE_CHECKING:
    from vllm.config import VllmConfig

DEFAULT = "default"
# Attribute of vLLM's SpeculativeConfig, which all copies of a VllmConfig share and pickling keeps.
ATTRIBUTE = "ascend_spec_resolved"
# Fields that are not values: where the values came from, and what to warn about.
BESIDE = ("sources", "notes", "warnings")


@dataclass(frozen=True, kw_only=True)
class SpecConfig:
    """What was asked for, with everything that follows from it. Filled by ``config/resolve.py``.

    Attributes:
        device: name of the kind of device; None if none was found, which ``check`` allows.
        family: family of the draft loops that run on it.
        method: the drafting method, as the user wrote it.
        vllm_method: what vLLM's own config calls it, see ``Method.vllm_method``.
        drafter: bases of the drafter's class on this device, as ``module:Class``.
        drafters_by_type: the same for drafts with a proposer of their own, by model type in vLLM.
        max_k: the most drafts per request and step, ``num_speculative_tokens``.
        schedule: rows (first batch size, last batch size, K); None without a schedule.
        draft_length: how K is chosen: ``fixed``, ``auto`` or ``adaptive``.
        draft_lengths: the values that K is chosen from, ascending; None if it is not chosen.
        tree: the nodes of the tree of drafts, by their paths, see ``tree_shape.py``; None for a
            chain, or if the drafter finds its trees.
        has_trees: whether drafts may be a tree.
        shapes_tree: whether the nodes follow from what is accepted; only their number stays.
        draft_sample_method: how drafts are picked: ``greedy`` or ``probabilistic``.
        rule: how drafts are accepted: ``token``, ``block``, ``seeded`` or ``synthetic``.
        seeds_for: which sampled requests without a seed get a hidden one: ``none``, ``top_k``
            (those with a top-k) or ``all``.
        verify_backend: backend of the verification ops; None for the best one.
        has_draft_model: whether a model makes the drafts, not the text alone.
        is_synchronous: whether drafting needs a step's tokens on the host.
        draft_loop: ``auto``, ``ours`` or ``stock``; None for methods without a loop.
        draft_window: the last tokens of a text that the draft attends to: their number, or ``auto``
            if it is chosen from step to step; None for the whole text.
        capture: how the captured graphs are chosen: ``planned``, ``stock`` or ``given``, which
            means by ``cudagraph_capture_sizes``.
        capture_graphs: maximum number of graphs for decode batches; None for stock's number, or
            up to 32 if that is more.
        capture_load: name of the expected distribution of decode batch sizes; None for 1/n.
        spec_page: whether a server has the page ``/spec``, which shows how drafts fare.
        collect_folder: where finished requests are written; None if nothing is collected.
        collect_max_bytes: maximum size of what is collected there.
        collect_rate: share of the finished requests that is collected.
        collect_what: what is written of them: ``tokens`` or ``text``.
        has_draft_rows: whether draft steps 2 to K, of one row per request, may use graphs.
        options: the other options of the method that were given, as the user wrote them.
        sources: where each value came from, by the value's name.
        notes: what was detected because the user did not say it.
        warnings: what a user who asked for this should know.
    """

    device: str | None
    family: str | None
    method: str
    vllm_method: str
    drafter: tuple[str, ...]
    max_k: int
    drafters_by_type: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    schedule: tuple[tuple[int, int, int], ...] | None = None
    draft_length: str = FIXED
    draft_lengths: tuple[int, ...] | None = None
    tree: tuple[tuple[int, ...], ...] | None = None
    has_trees: bool = False
    shapes_tree: bool = False
    draft_sample_method: str = "greedy"
    rule: str = TOKEN
    seeds_for: str = NONE
    verify_backend: str | None = None
    has_draft_model: bool = True
    is_synchronous: bool = False
    draft_loop: str | None = "auto"
    draft_window: int | str | None = None
    capture: str = PLANNED
    capture_graphs: int | None = None
    capture_load: str | None = None
    spec_page: bool = False
    collect_folder: str | None = None
    collect_max_bytes: int = 0
    collect_rate: float = 0.0
    collect_what: str = TOKENS
    has_draft_rows: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def lengths(self) -> tuple[int, ...]:
        """Every K that a step may have, ascending."""
        if self.draft_lengths is not None:
            return self.draft_lengths
        rows = self.schedule or ((1, 1, self.max_k),)
        return tuple(sorted({k for _, _, k in rows}))

    @property
    def lengths_of_graphs(self) -> tuple[int, ...]:
        """Values of K whose draft steps need full graphs of their own; empty if it is always K.

        1 is among them: with nothing to draft, one step keeps the draft's KV cache up to date.
        """
        changes = len(self.lengths) > 1 or self.tree is not None
        return tuple(sorted({1, *self.lengths} - {0})) if changes else ()

    @property
    def longest_chain(self) -> int:
        """Up to so many drafts are a chain; more are a tree.

        A tree's principal chain comes first. Of those that are found only one draft is known to be
        a chain.
        """
        if self.tree is not None:
            return sum(map(is_principal, self.tree))
        return 1 if self.has_trees else self.max_k

    def with_fixed_length(self, source: str) -> SpecConfig:
        """Return a copy in which K is fixed.

        Args:
            source: why K is fixed, for ``sources``.
        """
        sources = {**self.sources, "draft_length": source}
        sources.pop("draft_lengths", None)
        return replace(self, draft_length=FIXED, draft_lengths=None, sources=sources)

    @property
    def verify_rule(self) -> str:
        """The rule for requests without a seed; synthetic acceptance asks it for one token only."""
        return self.rule if self.rule == BLOCK else TOKEN

    @property
    def samples_drafts(self) -> bool:
        """Whether drafts are sampled from a distribution that the verifier needs."""
        return self.draft_sample_method == "probabilistic" and self.is_lossless

    @property
    def is_lossless(self) -> bool:
        """Whether the output is the target's own."""
        return self.rule != SYNTHETIC

    def as_json(self) -> dict[str, Any]:
        """Return every value with its source, for ``check``."""
        names = [f.name for f in fields(self) if f.name not in BESIDE]
        return {
            name: {"value": getattr(self, name), "from": self.sources.get(name, DEFAULT)}
            for name in names
        }


def speculation_of(vllm_config: VllmConfig) -> SpecConfig:
    """Return the speculation of an engine that has one.

    Raises:
        RuntimeError: it has none, or was not built on a platform of ours.
    """
    found = getattr(vllm_config.speculative_config, ATTRIBUTE, None)
    if found is None:
        raise RuntimeError(
            "this VllmConfig has no resolved speculation: it is without speculation, or was not "
            "built on a platform of vllm-ascend-spec"
        )
    return found


def attach(vllm_config: VllmConfig, speculation: SpecConfig) -> None:
    """Store an engine's speculation on its vLLM configuration."""
    setattr(vllm_config.speculative_config, ATTRIBUTE, speculation)
