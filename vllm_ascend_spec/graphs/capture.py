"""The sizes that an engine captures: the plan, and what other batches than decoding ones need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vllm_ascend_spec.graphs.budget import OWN_GRAPHS, Budget, default_graphs
from vllm_ascend_spec.graphs.load import Load, weights_of, zipf
from vllm_ascend_spec.graphs.modes import MODES
from vllm_ascend_spec.graphs.planner import Plan, plan
from vllm_ascend_spec.graphs.tiers import Tier, grid_of, stride_of


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """An engine, as far as its graphs depend on it.

    Attributes:
        mode: name of vLLM's ``CUDAGraphMode``, not ``NONE``.
        max_num_seqs: of the engine.
        tiers: that its decode batches belong to.
        stock: sizes that it would capture without a plan, in tokens, ascending.
        divisor: of all sizes, see :func:`vllm_ascend_spec.graphs.planner.plan`.
        max_tokens: of the largest graph; None for no limit.
        graphs: the most for decode batches; None for as many as ``stock`` has, for each tier, and
            up to ``own``.
        own: see :func:`vllm_ascend_spec.graphs.budget.default_graphs`.
        load: how often batches of each size are decoded; None for 1/n.
        draft_share: work of the draft's later passes, on one row for each request, over that of
            the target on as many rows; 0 for none.
        draft_has_pieces: whether the draft runs in graphs of pieces with sizes of its own, where
            the mode has such graphs.
    """

    mode: str
    max_num_seqs: int
    tiers: tuple[Tier, ...]
    stock: tuple[int, ...]
    divisor: int = 1
    max_tokens: int | None = None
    graphs: int | None = None
    own: int = OWN_GRAPHS
    load: Load | None = None
    draft_share: float = 0.0
    draft_has_pieces: bool = False


@dataclass(frozen=True)
class Capture:
    """What an engine captures.

    Attributes:
        decode: sizes for its decode batches, in tokens, ascending; in graphs of pieces for the
            draft's later passes, too.
        mixed: further ones for batches with prompts among them.
        load: name of the load that the plan is for.
        expected_padding: over that load, as a share of the useful work.
        notes: why batches run eager, a line each.
        decode_by_k: those of ``decode`` that are for each K; empty for graphs of pieces, which
            know tokens alone.
        draft_rows: widths of the draft's later passes, by the size of ``decode`` whose batch they
            belong to; empty where they have no graphs of their own.
    """

    decode: tuple[int, ...]
    mixed: tuple[int, ...]
    load: str
    expected_padding: float
    notes: tuple[str, ...] = ()
    decode_by_k: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    draft_rows: Mapping[int, int] = field(default_factory=dict)

    @property
    def sizes(self) -> list[int]:
        """All sizes in tokens, ascending: ``cudagraph_capture_sizes``."""
        return sorted({*self.decode, *self.mixed})


def capture_of(wanted: Wanted) -> Capture:
    """Choose the sizes of an engine.

    Decode batches and the passes of a draft get the plan. vLLM has one list for these and for all
    other batches (``vllm/v1/cudagraph_dispatcher.py:CudagraphDispatcher``); where the mode has
    graphs for those, the stock sizes above the plan's largest are kept, in whole requests if the
    mode wants that.

    Raises:
        ConfigError: no graph can be captured; names the constraint and the nearest that works.
    """
    mode = MODES[wanted.mode]
    load = wanted.load or zipf(wanted.max_num_seqs)
    if mode.has_full_decode:
        stride = max(stride_of(tier.k, wanted.divisor) for tier in wanted.tiers)
        stock = sorted({-(-size // stride) * stride for size in wanted.stock})
        found = _plan_whole(wanted, load, stock)
    else:
        stock = list(wanted.stock)
        found = _plan_pieces(wanted, load)
    largest, most = found.sizes[-1], wanted.max_tokens
    mixed = [size for size in stock if size > largest and (most is None or size <= most)]
    return Capture(
        found.sizes,
        tuple(mixed if mode.has_mixed else ()),
        load.name,
        found.figures.expected_padding,
        found.notes,
        found.sizes_by_k if mode.has_full_decode else {},
        _rows_of_draft(wanted, found) if mode.has_full_decode and mode.has_pieces else {},
    )


def _plan_whole(wanted: Wanted, load: Load, stock: Sequence[int]) -> Plan:
    """Plan graphs of whole requests, each for one K."""
    grids = [grid_of(tier, wanted.max_num_seqs, wanted.divisor) for tier in wanted.tiers]
    largest = [grid.count * grid.stride for grid in grids]
    graphs = _graphs(wanted, stock, largest, sum(grid.sizes for grid in grids))
    return plan(
        wanted.max_num_seqs,
        wanted.tiers,
        load=load,
        budget=Budget(graphs=max(graphs, len(grids)), max_tokens=wanted.max_tokens),
        divisor=wanted.divisor,
    )


def _plan_pieces(wanted: Wanted, load: Load) -> Plan:
    """Plan graphs of pieces, which know tokens alone: all K and the draft's passes share them."""
    widest = max(tier.last * tier.query_len for tier in wanted.tiers)
    # A size may be any number of tokens, so a token is a request without drafts to the planner.
    widest = -(-widest // wanted.divisor) * wanted.divisor
    counts = [0.0] * widest
    weights = weights_of(load, wanted.tiers, wanted.max_num_seqs)
    for tier in wanted.tiers:
        for n, weight in enumerate(weights[tier.k], start=1):
            if weight:
                counts[n * tier.query_len - 1] += weight
                counts[n - 1] += weight * wanted.draft_share
    graphs = _graphs(wanted, wanted.stock, [widest], sum(map(bool, counts)))
    found = plan(
        widest,
        0,
        load=Load(load.name, tuple(counts)),
        budget=Budget(graphs=graphs, max_tokens=wanted.max_tokens),
        divisor=wanted.divisor,
    )
    notes = (f"steps of more than {found.sizes[-1]} tokens run eager",) if found.notes else ()
    return replace(found, notes=notes)


def _rows_of_draft(wanted: Wanted, found: Plan) -> dict[int, int]:
    """Return the widths of the draft's later passes: as many rows as the batch has requests.

    What is planned for the batches is planned for these: both grow with the requests alone.
    """
    if not wanted.draft_has_pieces or not wanted.draft_share:
        return {}
    wide = wanted.divisor
    rows = {
        size: -(-(size // (k + 1)) // wide) * wide
        for k, sizes in found.sizes_by_k.items()
        for size in sizes
    }
    return {size: width for size, width in rows.items() if width < size}


def _graphs(wanted: Wanted, stock: Sequence[int], largest: Sequence[int], batches: int) -> int:
    """Return how many graphs there may be for decode batches.

    Args:
        wanted: the engine.
        stock: its sizes without a plan, in tokens.
        largest: tokens of the widest batch of each tier.
        batches: sizes that a batch of some tier can have.
    """
    if wanted.graphs is not None:
        return wanted.graphs
    each = (max(1, sum(size <= most for size in stock)) for most in largest)
    return default_graphs(sum(each), batches, wanted.own)


def share_of_draft(drafts: int, layers: int, draft_layers: int) -> float:
    """Return :attr:`Wanted.draft_share` by the models' layers.

    Args:
        drafts: K; passes 2 to K are later ones.
        layers: of the target.
        draft_layers: of the draft; 0 for none.
    """
    return (drafts - 1) * draft_layers / layers if layers else 0.0
