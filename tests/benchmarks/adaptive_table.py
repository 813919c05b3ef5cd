"""Format the record of ``benchmarks adaptive`` as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.bench.stats import Summary


def format_table(record: Mapping[str, Any]) -> str:
    """Return tokens per second, one line for each load."""
    everything = {**record["cells"], **record["alternating"]}
    names = list(next(iter(everything.values()))["tokens_per_s"])
    head = "".join(f"{name:>10}" for name in names)
    lines = [f"{'tokens/s':32}{head}{'ratio to none':>15}{'to best fixed':>15}  best fixed"]
    for load, row in everything.items():
        speeds = "".join(f"{row['tokens_per_s'][name]['median']:10.0f}" for name in names)
        ratios = f"{row['to_none']['median']:15.2f}{row['to_best_fixed']['median']:15.2f}"
        lines.append(f"{load:32}{speeds}{ratios}  {row['best_fixed']}")
    for load, row in record["cells"].items():
        if control := row.get("control"):
            lines.append(f"{load}: control {Summary(**control)}")
        if parts := row.get("factors"):
            named = (f"{name.replace('_', ' ')} {value:.2f}" for name, value in parts.items())
            lines.append(f"{load}: of that ratio {', '.join(named)}")
    for load, row in record["alternating"].items():
        known = row["best_of_each_phase"]
        best = row["tokens_per_s"][row["best_fixed"]]["median"]
        lines.append(
            f"{load}: {known['tokens_per_s']:.0f} with the best of each phase, "
            f"{known['tokens_per_s'] / best:.2f} of {row['best_fixed']} "
            f"({', '.join(known['configurations'])})"
        )
    return "\n".join(lines)
