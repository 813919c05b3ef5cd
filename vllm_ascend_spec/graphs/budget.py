"""How many graphs may be captured, and how large the largest may be."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs.tiers import check_count

# Graphs allowed for the batch sizes of all tiers together, if no limit is given and stock has
# fewer. vLLM itself captures 32 for 32 requests with K=7, and 50 for its default of 256.
OWN_GRAPHS = 32


@dataclass(frozen=True)
class GraphCost:
    """Memory that captured graphs take, modelled like vLLM's own profile of it.

    ``vllm/v1/worker/gpu_model_runner.py:GPUModelRunner.profile_cudagraph_memory``: a pool that all
    graphs share, as large as the largest one needs, and a part for each graph.

    Attributes:
        bytes_each: bytes per graph.
        bytes_per_token: bytes of the shared pool per token of the largest graph.
    """

    bytes_each: int
    bytes_per_token: int

    def bytes_of(self, graphs: int, largest: int) -> int:
        """Return the bytes of that many graphs, of which the largest has ``largest`` tokens."""
        return graphs * self.bytes_each + largest * self.bytes_per_token if graphs else 0


@dataclass(frozen=True)
class Budget:
    """Limits on the captured graphs, which all apply; None means no limit.

    Attributes:
        graphs: number of graphs of all tiers together.
        max_tokens: tokens of a graph, e.g. ``max_num_batched_tokens``.
        bytes: bytes of device memory.
        cost: memory of a graph; needed for the one above.
    """

    graphs: int | None = None
    max_tokens: int | None = None
    bytes: int | None = None
    cost: GraphCost | None = None

    def __post_init__(self) -> None:
        if self.graphs is not None and self.graphs == 0:
            problem = "leaves all batches eager; nearest: 1, the largest size for all of them"
            raise ConfigError("budget.graphs", 0, problem)
        for name in ("graphs", "max_tokens", "bytes"):
            if (value := getattr(self, name)) is not None:
                check_count(f"budget.{name}", value, 1)
        if self.cost is None and self.bytes is not None:
            raise ConfigError("budget.bytes", self.bytes, "needs to know what a graph takes")


@dataclass(frozen=True)
class Limits:
    """Limits on graphs that follow from a budget.

    Attributes:
        graphs: most graphs; None for no limit.
        max_tokens: tokens of the largest graph; None for no limit.
        reason: the entries of the budget that set a limit, for a report.
    """

    graphs: int | None
    max_tokens: int | None
    reason: str = ""


def default_graphs(stock: int, batches: int, own: int = OWN_GRAPHS) -> int:
    """Return how many graphs are allowed if no limit is given.

    It is the number that stock captures. If that is too few for one graph per batch size, up to
    ``own`` are allowed.

    Args:
        stock: number of graphs that stock captures.
        batches: number of batch sizes of all tiers, i.e. of possible graphs.
        own: see above; 0 for as many as stock.
    """
    return max(1, stock, min(batches, own))


def limits_of(budget: Budget, tiers: int, smallest: int, largest: int) -> Limits:
    """Return the limits that follow from a budget for these tiers.

    If the memory does not hold one graph of ``largest`` for each tier, the largest graph gets
    smaller, and larger batches have no graph.

    Args:
        budget: the budget as given.
        tiers: number of tiers that need a graph.
        smallest: tokens of the smallest graph there can be.
        largest: tokens of the graph that covers every batch.

    Raises:
        ConfigError: not even the smallest graph fits; names the limit and the least that works.
    """
    graphs, tokens, reasons = budget.graphs, budget.max_tokens, []
    if tokens is not None:
        _check_least("budget.max_tokens", tokens, smallest, f"covering all takes {largest}")
        largest = min(largest, tokens)
        reasons.append(f"max_tokens={tokens}")
    if graphs is not None:
        reasons.append(f"graphs={graphs}")
    cost = budget.cost
    if budget.bytes is not None and cost is not None:
        need = cost.bytes_of(1, smallest)
        cover = f"covering all takes {cost.bytes_of(tiers, largest)}"
        _check_least("budget.bytes", budget.bytes, need, cover)
        planned = min(tiers, tiers if graphs is None else graphs)
        if cost.bytes_of(planned, largest) > budget.bytes:
            planned, largest = _shrunk(budget.bytes, cost, planned, smallest, largest)
            graphs, tokens = _least(graphs, planned), _least(tokens, largest)
        elif cost.bytes_each:
            pool = cost.bytes_of(1, largest) - cost.bytes_each
            graphs = _least(graphs, (budget.bytes - pool) // cost.bytes_each)
        reasons.append(f"bytes={budget.bytes}")
    return Limits(graphs, tokens, ", ".join(reasons))


def _shrunk(
    room: int, cost: GraphCost, planned: int, smallest: int, largest: int
) -> tuple[int, int]:
    """Return the most graphs that fit, up to one for each tier, and the tokens of the largest."""
    while planned > 1 and cost.bytes_of(planned, smallest) > room:
        planned -= 1
    if cost.bytes_of(planned, largest) <= room:
        return planned, largest
    return planned, (room - planned * cost.bytes_each) // cost.bytes_per_token


def _least(limit: int | None, other: int) -> int:
    return other if limit is None else min(limit, other)


def _check_least(option: str, value: int, least: int, more: str) -> None:
    if value < least:
        raise ConfigError(option, value, f"too little; the nearest that works is {least}, {more}")
