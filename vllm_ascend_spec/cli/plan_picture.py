"""The picture of ``vllm-ascend-spec plan``: waste over batch size."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm_ascend_spec.bench.picture import NO_MATPLOTLIB, save
from vllm_ascend_spec.cli.plan_inputs import PlanCase
from vllm_ascend_spec.cli.plan_policies import Comparison
from vllm_ascend_spec.cli.plan_report import NAMES
from vllm_ascend_spec.graphs.k_buckets import KBucket
from vllm_ascend_spec.graphs.step_cost import StepCost

# Narrow lines lie on wide ones, so that equal lines all stay visible.
WIDTHS = (4.0, 2.0, 1.0)


def draw(case: PlanCase, comparison: Comparison, path: Path) -> str:
    """Draw the waste of each batch, one panel for each tier; return a line that says what was done.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        return NO_MATPLOTLIB
    tiers = case.engine.tiers
    policies = {**comparison.stock, "ours": comparison.ours}
    figure = Figure(figsize=(10, 1.5 + 3 * len(tiers)), layout="constrained")
    panels: list[Any] = list(figure.subplots(len(tiers), 1, sharex=True, squeeze=False)[:, 0])
    for panel, tier in zip(panels, tiers, strict=True):
        for (name, policy), width in zip(policies.items(), WIDTHS, strict=True):
            if policy.figures is not None:
                sizes = policy.sizes_by_k.get(tier.k, ())
                label = f"{NAMES.get(name, name)}, {policy.graphs} graphs"
                draw_waste(panel, tier, sizes, case.work, label, width)
        panel.set_yscale("symlog", linthresh=0.01)
        panel.set_ylim(bottom=0)
        panel.set_title(f"K={tier.k}", loc="left", fontsize="small")
        panel.set_ylabel("waste / useful work")
        panel.grid(alpha=0.3)
    panels[-1].set_xlabel("requests in the batch")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.suptitle("What padding to the captured sizes wastes")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small")
    return save(figure, path)


def draw_waste(
    panel: Any, tier: KBucket, sizes: Sequence[int], work: StepCost, name: str, width: float
) -> None:
    """Draw one policy's waste, dotted for batches that run eager.

    Args:
        panel: matplotlib's axes.
        tier: tier of the batches.
        sizes: sizes captured for the tier, in tokens, ascending.
        work: what steps cost.
        name: name of the policy.
        width: width of its line, in points.
    """
    batches = list(tier.batches())
    wasted = [waste_of(n, tier, sizes, work) for n in batches]
    replayed = [share if is_replayed else float("nan") for share, is_replayed in wasted]
    eager = [float("nan") if is_replayed else share for share, is_replayed in wasted]
    (line,) = panel.plot(batches, replayed, label=name, linewidth=width)
    panel.plot(batches, eager, linestyle=":", color=line.get_color(), linewidth=width)


def waste_of(
    requests: int, tier: KBucket, sizes: Sequence[int], work: StepCost
) -> tuple[float, bool]:
    """Return what a batch wastes, as a share of its useful work, and whether it is replayed."""
    tokens = requests * tier.query_len
    own = work.of_graph(tokens)
    place = bisect_left(sizes, tokens)
    if place == len(sizes):
        return work.of_eager(tokens) / own - 1, False
    return work.of_graph(sizes[place]) / own - 1, True
