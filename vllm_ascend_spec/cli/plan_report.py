"""What ``vllm-ascend-spec plan`` prints."""

from __future__ import annotations

from typing import Any

from vllm_ascend_spec.cli.plan_inputs import PlanCase
from vllm_ascend_spec.cli.plan_policies import Comparison, Policy

HEAD = ("", "graphs", "all up to", "padding", "eager", "eager cost", "waste", "worst hole")
NAMES = {"ours": "ours", "vllm": "vLLM", "vllm_ascend": "vllm-ascend"}


def text(case: PlanCase, comparison: Comparison) -> str:
    """Return the table with its explanations."""
    policies = {"ours": comparison.ours, **comparison.stock}
    rows = [HEAD, *(row_of(NAMES[name], policy, case) for name, policy in policies.items())]
    lines = [_title(case, comparison), "", *_aligned(rows), ""]
    lines += [f"{NAMES[name]}: {policy.source}" for name, policy in comparison.stock.items()]
    for name, policy in policies.items():
        lines += [f"{NAMES[name]}: {note}" for note in policy.notes]
        if policy.problem:
            lines.append(f"{NAMES[name]} does not start: {policy.problem}")
    lines.append("padding and eager cost are shares of the useful work; nothing is measured:")
    lines.append(
        f"a step costs its {case.work.unit}, an eager step {case.work.eager_factor:g} times that"
    )
    return "\n".join([*lines, "", *_sizes(case, comparison.ours)])


def record(case: PlanCase, comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as a record."""
    engine = case.engine
    return {
        "max_num_seqs": engine.max_num_seqs,
        "tiers": [{"k": tier.k, "batches": list(tier.ranges)} for tier in engine.tiers],
        "load": case.load.name,
        "divisor": engine.divisor,
        "work": {"unit": case.work.unit, "eager_factor": case.work.eager_factor},
        "graphs_limited_by": comparison.limit,
        "ours": _policy(comparison.ours, case),
        **{name: _policy(policy, case) for name, policy in comparison.stock.items()},
    }


def _policy(policy: Policy, case: PlanCase) -> dict[str, Any]:
    figures = policy.figures
    found: dict[str, Any] = {
        "source": policy.source,
        "graphs": policy.graphs,
        "sizes": policy.sizes,
        "sizes_by_k": {str(k): list(sizes) for k, sizes in policy.sizes_by_k.items()},
        "notes": list(policy.notes),
        "problem": policy.problem or None,
        "expected_padding": None,
        "eager_batches": None,
    }
    if figures is None:
        return found
    worst = figures.worst
    return {
        **found,
        "expected_padding": figures.expected_padding,
        "covers_up_to": covered(policy, case),
        "eager_batches": sorted({n for row in figures.eager.values() for n in row}),
        "eager_batches_by_k": {str(k): list(row) for k, row in figures.eager.items()},
        "eager_share": figures.eager_share,
        "eager_cost": figures.eager_cost,
        "expected_waste": figures.expected_waste,
        "worst_hole": worst
        and {
            "k": worst.k,
            "requests": worst.requests,
            "size": worst.size,
            "padding": worst.padding,
        },
    }


def _title(case: PlanCase, comparison: Comparison) -> str:
    engine = case.engine
    if len(engine.tiers) == 1:
        drafts = f"K={engine.tiers[0].k}"
    else:
        drafts = "; ".join(
            f"K={tier.k} for " + ", ".join(f"{a}-{b}" for a, b in tier.ranges)
            for tier in engine.tiers
        )
    multiple = f", sizes also multiples of {engine.divisor}" if engine.divisor > 1 else ""
    return (
        f"up to {engine.max_num_seqs} requests, {drafts}{multiple}, load {case.load.name}, "
        f"graphs: {comparison.limit}"
    )


def row_of(name: str, policy: Policy, case: PlanCase) -> tuple[str, ...]:
    """Return a policy's row of the table."""
    figures = policy.figures
    if figures is None:
        return (name, *["-"] * (len(HEAD) - 1))
    hole, drafts = figures.worst, len(case.engine.tiers) > 1
    worst = "none"
    if hole is not None:
        of = f" with K={hole.k}" if drafts else ""
        worst = f"{hole.requests} as {hole.size // (hole.k + 1)}{of}, {hole.padding:+.0%}"
    return (
        name,
        str(policy.graphs),
        str(covered(policy, case)),
        f"{figures.expected_padding:.1%}",
        f"{figures.eager_share:.1%}",
        f"{figures.eager_cost:.1%}",
        f"{figures.expected_waste:.1%}",
        worst,
    )


def covered(policy: Policy, case: PlanCase) -> int:
    """Return the largest n such that all batches of 1 to n requests are replayed."""
    assert policy.figures is not None
    eager = [row[0] for row in policy.figures.eager.values() if row]
    return min(eager, default=case.engine.max_num_seqs + 1) - 1


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def _sizes(case: PlanCase, ours: Policy) -> list[str]:
    """Return our sizes, with one line per tier if there are several."""
    if len(case.engine.tiers) == 1:
        return [f"sizes: {ours.sizes}"]
    return [f"sizes for K={k}: {list(sizes)}" for k, sizes in ours.sizes_by_k.items()]
