"""Choose the sizes that an engine captures: planned for decode batches, stock for the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vllm_ascend_spec.graphs.batch_distribution import BatchDistribution, weights_of, zipf
from vllm_ascend_spec.graphs.budget import OWN_GRAPHS, Budget, default_graphs
from vllm_ascend_spec.graphs.modes import MODES
from vllm_ascend_spec.graphs.planner import CapturePlan, plan
from vllm_ascend_spec.graphs.tiers import Tier, grid_of, stride_of


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Settings of an engine that its graphs depend on.

    Attributes:
        mode: name of vLLM's ``CUDAGraphMode``, not ``NONE``.
        max_num_seqs: most requests that the engine runs at once.
        tiers: tiers that its decode batches belong to.
        stock: sizes that it would capture without a plan, in tokens, ascending.
        divisor: divisor of all sizes, see :func:`vllm_ascend_spec.graphs.planner.plan`.
        max_tokens: most tokens of a graph; None for no limit.
        graphs: most graphs for decode batches; None for as many as ``stock`` has for each tier, or
            up to ``own`` if these are too few.
        own: see :func:`vllm_ascend_spec.graphs.budget.default_graphs`.
        load: how often batches of each size are decoded; None for 1/n.
        draft_share: work of draft steps 2 to K, on one row per request, as a share of the target's
            on as many rows; 0 for none.
        draft_has_pieces: whether the draft runs in piecewise graphs with sizes of its own, if the
            mode has such graphs.
    """

    mode: str
    max_num_seqs: int
    tiers: tuple[Tier, ...]
    stock: tuple[int, ...]
    divisor: int = 1
    max_tokens: int | None = None
    graphs: int | None = None
    own: int = OWN_GRAPHS
    load: BatchDistribution | None = None
    draft_share: float = 0.0
    draft_has_pieces: bool = False


@dataclass(frozen=True)
class Capture:
    """What an engine captures.

    Attributes:
        decode: sizes for decode batches, in tokens, ascending; with piecewise graphs also for
            draft steps 2 to K.
        mixed: further sizes for batches with prefill.
        load: name of the load that the plan is for.
        expected_padding: expected padding over that load, as a share of the useful work.
        notes: why batches run eager, a line each.
        decode_by_k: sizes of ``decode`` by K; empty for piecewise graphs, which depend only on the
            number of tokens.
        draft_rows: rows of draft steps 2 to K by the size in ``decode`` of their batch; empty if
            these steps have no graphs of their own.
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

    Decode batches and draft steps get planned sizes. vLLM has one list for these and for all other
    batches (``vllm/v1/cudagraph_dispatcher.py:CudagraphDispatcher``). If the mode has graphs for
    the others, the stock sizes above the largest planned one are kept, rounded up to whole requests
    if the mode requires that.

    Raises:
        ConfigError: no graph can be captured; names the constraint and the nearest value that
            works.
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


def _plan_whole(wanted: Wanted, load: BatchDistribution, stock: Sequence[int]) -> CapturePlan:
    """Plan full graphs, each for whole requests with one K."""
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


def _plan_pieces(wanted: Wanted, load: BatchDistribution) -> CapturePlan:
    """Plan piecewise graphs: keyed by tokens alone, they serve all K and the draft steps."""
    widest = max(tier.last * tier.query_len for tier in wanted.tiers)
    # A size may be any number of tokens, so the planner is given tokens as requests with K=0.
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
        load=BatchDistribution(load.name, tuple(counts)),
        budget=Budget(graphs=graphs, max_tokens=wanted.max_tokens),
        divisor=wanted.divisor,
    )
    notes = (f"steps of more than {found.sizes[-1]} tokens run eager",) if found.notes else ()
    return replace(found, notes=notes)


def _rows_of_draft(wanted: Wanted, found: CapturePlan) -> dict[int, int]:
    """Return the rows of draft steps 2 to K, one for each request of the batch.

    The plan for the batches also suits these steps: both grow with the number of requests alone.
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
    """Return how many graphs are allowed for decode batches.

    Args:
        wanted: the engine's settings.
        stock: its sizes without a plan, in tokens.
        largest: tokens of the largest batch of each tier.
        batches: number of sizes that batches of all tiers can have.
    """
    if wanted.graphs is not None:
        return wanted.graphs
    each = (max(1, sum(size <= most for size in stock)) for most in largest)
    return default_graphs(sum(each), batches, wanted.own)


def share_of_draft(drafts: int, layers: int, draft_layers: int) -> float:
    """Return :attr:`Wanted.draft_share` as estimated from the models' numbers of layers.

    Args:
        drafts: K; draft steps 2 to K count.
        layers: number of layers of the target.
        draft_layers: number of layers of the draft; 0 for none.
    """
    return (drafts - 1) * draft_layers / layers if layers else 0.0
