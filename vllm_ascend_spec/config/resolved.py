"""The speculation of an engine, resolved once: the one record that every part reads.

It is made by ``resolve.py`` before vLLM builds its configuration, travels with that to every
process, and says of each value where it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from vllm_ascend_spec.config.rules import SYNTHETIC
from vllm_ascend_spec.config.schema import FIXED, PLANNED, VERIFY_RULES

if TYPE_CHECKING:
    from vllm.config import VllmConfig

DEFAULT = "default"
# On vLLM's SpeculativeConfig, which every copy of a VllmConfig shares and pickling keeps.
ATTRIBUTE = "ascend_spec_resolved"
# Where a value came from and what to warn of stands beside the values.
BESIDE = ("sources", "notes", "warnings")


@dataclass(frozen=True, kw_only=True)
class Speculation:
    """What was asked for, with everything that follows from it. Filled by ``config/resolve.py``.

    Attributes:
        device: name of the kind of device; None where none was found, which ``check`` allows.
        family: whose draft loops run on it.
        method: the drafting method, as the person wrote it.
        vllm_method: what vLLM's own config calls it, see ``Method.carrier``.
        drafter: bases of the drafter's class on this device, as ``module:Class``.
        num_drafts: K, the most drafts per request and step.
        schedule: rows (first batch size, last batch size, K); None for K always.
        draft_length: who chooses K: ``fixed``, ``auto`` or ``adaptive``.
        draft_lengths: what it is chosen from, ascending; None where it is not.
        draft_sample_method: how drafts are picked: ``greedy`` or ``probabilistic``.
        rule: how they are accepted: ``token``, ``block`` or ``synthetic``.
        verify_backend: of the verification ops; None for the best one.
        has_draft_model: whether weights make the drafts, not the text alone.
        is_synchronous: whether drafting needs a step's tokens on the host.
        draft_loop: ``auto``, ``ours`` or ``stock``; None for methods without a loop.
        capture: who chooses which graphs are captured: ``planned``, ``stock`` or, by
            ``cudagraph_capture_sizes``, ``given``.
        capture_graphs: the most graphs for decode batches; None for as many as stock has,
            or up to 32 if that is more.
        capture_load: how often batches of each size are decoded, by name; None for 1/n.
        spec_page: whether a server shows what becomes of drafts at ``/spec``.
        has_draft_rows: whether the draft has passes of one row for each request.
        options: the method's further options that were given, as the person wrote them.
        sources: where each value came from, by the value's name.
        notes: what was found out for a person who did not say it.
        warnings: what a person should know who asked for this.
    """

    device: str | None
    family: str | None
    method: str
    vllm_method: str
    drafter: tuple[str, ...]
    num_drafts: int
    schedule: tuple[tuple[int, int, int], ...] | None = None
    draft_length: str = FIXED
    draft_lengths: tuple[int, ...] | None = None
    draft_sample_method: str = "greedy"
    rule: str = VERIFY_RULES[0]
    verify_backend: str | None = None
    has_draft_model: bool = True
    is_synchronous: bool = False
    draft_loop: str | None = "auto"
    capture: str = PLANNED
    capture_graphs: int | None = None
    capture_load: str | None = None
    spec_page: bool = False
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
        rows = self.schedule or ((1, 1, self.num_drafts),)
        return tuple(sorted({k for _, _, k in rows}))

    @property
    def lengths_of_graphs(self) -> tuple[int, ...]:
        """Numbers of draft steps that need full graphs of their own; empty where K is fixed.

        One step keeps the draft's KV cache in step where there is nothing to draft.
        """
        return tuple(sorted({1, *self.lengths} - {0})) if len(self.lengths) > 1 else ()

    def with_fixed_length(self, source: str) -> Speculation:
        """Return the same with K fixed.

        Args:
            source: where that came from.
        """
        sources = {**self.sources, "draft_length": source}
        sources.pop("draft_lengths", None)
        return replace(self, draft_length=FIXED, draft_lengths=None, sources=sources)

    @property
    def verify_rule(self) -> str:
        """The rule that the op is called with; synthetic acceptance asks it for one token only."""
        return VERIFY_RULES[0] if self.rule == SYNTHETIC else self.rule

    @property
    def samples_drafts(self) -> bool:
        """Whether drafts are drawn from a distribution that the verifier is to have."""
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


def speculation_of(vllm_config: VllmConfig) -> Speculation:
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


def attach(vllm_config: VllmConfig, speculation: Speculation) -> None:
    """Lay down the speculation of an engine with vLLM's configuration of it."""
    setattr(vllm_config.speculative_config, ATTRIBUTE, speculation)
