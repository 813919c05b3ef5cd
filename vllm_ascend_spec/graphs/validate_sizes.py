"""Check a user's own list of sizes: whether it is valid, and which valid list is nearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.graphs.tiers import Tier, check_count, grid_of, tiers_of

OPTION = "compilation_config.cudagraph_capture_sizes"


@dataclass(frozen=True)
class SizeCheck:
    """The result of checking a list.

    Attributes:
        problem: why it cannot be captured exactly as it is; empty if it can.
        sizes: the list, ascending, if it is valid; else the nearest one that is.
        sizes_by_k: the same by K: each tier has the sizes that fit it.
        eager: batches that then have no graph by K, as numbers of requests.
    """

    problem: str
    sizes: tuple[int, ...]
    sizes_by_k: Mapping[int, tuple[int, ...]]
    eager: Mapping[int, tuple[int, ...]]

    @property
    def is_valid(self) -> bool:
        """Whether every size of the list can be captured, and nothing else would be."""
        return not self.problem


def validate(
    sizes: Sequence[int],
    max_num_seqs: int,
    tiers: int | Sequence[int] | Sequence[Tier],
    divisor: int = 1,
    *,
    mixed_tokens: int = 0,
) -> SizeCheck:
    """Return whether a list of sizes can be captured exactly, and the nearest one that can.

    A list is valid if it has no size twice and each size fits a tier: it is a multiple of the
    tier's K+1 (and of ``divisor``), for at most ``max_num_seqs`` requests. The list may have any
    order and need not cover every batch. If batches with prefill are replayed, too, they may have
    sizes of up to ``mixed_tokens``.

    The nearest list has each size rounded up to one that fits, as vLLM does, but drops none; sizes
    beyond ``max_num_seqs`` requests become the largest. If several sizes would become one and all
    are at most ``max_num_seqs``, the list is read as batch sizes, and the nearest has the graphs of
    these batches: with K=4, ``[1, 2, 3, 4]`` becomes ``[5, 10, 15, 20]``.

    Args:
        sizes: sizes in tokens, as given.
        max_num_seqs: most requests that the engine runs at once.
        tiers: K, several K, or the tiers in use.
        divisor: see :func:`vllm_ascend_spec.graphs.planner.plan`.
        mixed_tokens: tokens of the largest batch with prefill that may have a graph; 0 for none.

    Raises:
        ConfigError: no list can be valid, or ``sizes`` is not a list of whole numbers.
    """
    check_count("max_num_seqs", max_num_seqs, 1)
    check_count("divisor", divisor, 1)
    tiers = tiers_of(max_num_seqs, tiers)
    if isinstance(sizes, str) or not isinstance(sizes, Sequence) or not sizes:
        raise ConfigError(OPTION, sizes, "valid: a list of one size or more, in tokens")
    for size in sizes:
        check_count(OPTION, size, 1)
    fits = {tier.k: _fitting(tier, max_num_seqs, divisor, mixed_tokens) for tier in tiers}
    if not any(fits.values()):
        problem = f"no graph of max_num_seqs={max_num_seqs} requests or fewer can have such a size"
        raise ConfigError("divisor", divisor, problem)
    limit = f"max_num_seqs={max_num_seqs} requests take"
    problem = _problem(sizes, fits, limit if not mixed_tokens else "a step takes")
    chosen = sorted(sizes) if not problem else _nearest(sizes, tiers, fits, max_num_seqs)
    by_k = {k: tuple(size for size in chosen if size in fitting) for k, fitting in fits.items()}
    eager = {tier.k: _eager(tier, by_k[tier.k]) for tier in tiers}
    return SizeCheck(problem, tuple(chosen), by_k, eager)


def check(
    sizes: Sequence[int],
    max_num_seqs: int,
    tiers: int | Sequence[int] | Sequence[Tier],
    divisor: int = 1,
    *,
    mixed_tokens: int = 0,
    option: str = OPTION,
) -> SizeCheck:
    """Return the verdict on a list that has to be captured exactly as it is.

    Args:
        sizes: sizes in tokens; see :func:`validate` for this and the next four.
        max_num_seqs: most requests that the engine runs at once.
        tiers: tiers in use.
        divisor: divisor of all sizes.
        mixed_tokens: tokens of the largest batch with prefill.
        option: name of the option that gave the list.

    Raises:
        ConfigError: a ValueError; the list is not valid. Names the nearest one that is.
    """
    verdict = validate(sizes, max_num_seqs, tiers, divisor, mixed_tokens=mixed_tokens)
    if not verdict.is_valid:
        nearest = f"nearest valid list: {list(verdict.sizes)}"
        raise ConfigError(option, list(sizes), f"{verdict.problem}; {nearest}")
    return verdict


def _fitting(tier: Tier, max_num_seqs: int, divisor: int, mixed_tokens: int) -> range:
    """Return all sizes that can be captured for a tier, whether a batch of it needs them or not."""
    whole = Tier(tier.k, ((1, max_num_seqs),))
    grid = grid_of(whole, max_num_seqs, divisor)
    largest = max(grid.count * grid.stride, mixed_tokens)
    return range(grid.stride, largest + 1, grid.stride)


def _problem(sizes: Sequence[int], fits: Mapping[int, range], limit: str) -> str:
    strides = " or ".join(str(fitting.step) for fitting in fits.values())
    largest = max(fitting[-1] for fitting in fits.values() if fitting)
    for size in sizes:
        if all(size % fitting.step for fitting in fits.values()):
            return f"{size} is no multiple of {strides} tokens"
        if not any(size in fitting for fitting in fits.values()):
            return f"{size} is more than {limit}, {largest}"
    twice = next((size for size in sizes if list(sizes).count(size) > 1), None)
    return f"{twice} is there twice" if twice is not None else ""


def _nearest(
    sizes: Sequence[int], tiers: Sequence[Tier], fits: Mapping[int, range], max_num_seqs: int
) -> list[int]:
    given = sorted(set(sizes))
    largest = max(fitting[-1] for fitting in fits.values() if fitting)
    rounded = {min(_above(size, fits), default=largest) for size in given}
    if len(rounded) == len(given) or given[-1] > max_num_seqs:
        return sorted(rounded)
    of_batches = {
        min(-(-n * tier.query_len // fitting.step) * fitting.step, fitting[-1])
        for n in given
        for tier, fitting in zip(tiers, fits.values(), strict=True)
        if fitting
    }
    return sorted(of_batches)


def _above(size: int, fits: Mapping[int, range]) -> list[int]:
    """Return the next size up of each tier that has one."""
    rounded = ((-(-size // fitting.step) * fitting.step, fitting) for fitting in fits.values())
    return [up for up, fitting in rounded if up in fitting]


def _eager(tier: Tier, sizes: Sequence[int]) -> tuple[int, ...]:
    covered = sizes[-1] // tier.query_len if sizes else 0
    return tuple(n for n in tier.batches() if n > covered)
