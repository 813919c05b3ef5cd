"""Baselines with equally many graphs: a stock list cut short or thinned, and an even grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vllm_ascend_spec.graphs.tiers import SizeGrid

SizesByK = dict[int, tuple[int, ...]]


def cut(sizes: Mapping[int, Sequence[int]], graphs: int) -> SizesByK:
    """Return the smallest sizes, at most ``graphs`` of them: vLLM's own way to capture fewer.

    That is its option ``max_cudagraph_capture_size``; larger batches run eager.

    Args:
        sizes: sizes by K, in tokens, ascending.
        graphs: number of graphs of all tiers together.
    """
    everything = sorted(size for row in sizes.values() for size in row)
    bounds = {0, *everything}
    bound = max(b for b in bounds if sum(size <= b for size in everything) <= graphs)
    return {k: tuple(size for size in row if size <= bound) for k, row in sizes.items()}


def thin(sizes: Mapping[int, Sequence[int]], graphs: int) -> SizesByK:
    """Return sizes spread evenly over each tier's list, including its last.

    Args:
        sizes: sizes by K, in tokens, ascending.
        graphs: number of graphs of all tiers together.
    """
    parts = _parts(graphs, len(sizes))
    return {
        k: thinned(row, part) if part and row else ()
        for (k, row), part in zip(sizes.items(), parts, strict=True)
    }


def even(grids: Mapping[int, SizeGrid], graphs: int) -> SizesByK:
    """Return evenly spaced sizes, in each tier up to the largest that it can have.

    Args:
        grids: possible sizes by K.
        graphs: number of graphs of all tiers together.
    """
    parts = _parts(graphs, len(grids))
    return {
        k: even_grid(grid.count * grid.stride, grid.stride, part) if part and grid.count else ()
        for (k, grid), part in zip(grids.items(), parts, strict=True)
    }


def _parts(graphs: int, tiers: int) -> list[int]:
    """Return how many graphs each tier gets; the last tiers get one of the remainder each."""
    return [(graphs + place) // tiers for place in range(tiers)]


def thinned(sizes: Sequence[int], graphs: int) -> tuple[int, ...]:
    """Return ``graphs`` of the sizes, spread evenly over the list, including the first and last.

    vllm-ascend did this where its list was longer than its streams allowed, before its change 9962.

    Args:
        sizes: sizes, ascending.
        graphs: how many to keep, 1 or more; a single one is the largest.
    """
    if graphs >= len(sizes):
        return tuple(sizes)
    if graphs == 1:
        return (sizes[-1],)
    step = (len(sizes) - 1) / (graphs - 1)
    return tuple(sizes[round(place * step)] for place in range(graphs))


def even_grid(top: int, unit: int, graphs: int) -> tuple[int, ...]:
    """Return evenly spaced sizes up to ``top``, rounded up to multiples of ``unit``.

    Args:
        top: the largest size, a multiple of ``unit``.
        unit: number of tokens.
        graphs: most sizes.
    """
    places = (-(-top * place // (graphs * unit)) * unit for place in range(1, graphs + 1))
    return tuple(sorted(set(places)))
