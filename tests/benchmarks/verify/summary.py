"""Summarise the cases of ``benchmarks verify`` and compare them with the aims."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.bench.stats import Summary

Row = Mapping[str, Any]
BY_TOKEN_RULE_KINDS = ("greedy", "plain", "top-p", "top-k-top-p", "sampled-drafts")
BLOCK_KINDS = ("block", "block-sampled-drafts")
SEEDED_KINDS = (
    *("seeded", "seeded-top-p", "seeded-top-k-top-p", "seeded-spread", "seeded-no-drafts"),
)
RATIOS = ("vllm", "torch", "argmax", "token rule")
SHARE = "share_of_read"
LARGE_BATCH = 8
# On an otherwise idle machine, a process with one thread gets nearly all of a CPU.
QUIET = 0.95
QUIET_LOAD = 1.0


@dataclass(frozen=True)
class Aim:
    """What a kind of case should reach.

    Attributes:
        title: what is compared.
        kind: kind of the cases.
        figure: a key of a row's ratios, or ``SHARE``.
        limit: the figure must be at least this if ``at_least``, else at most this.
        by: what must reach the limit: ``geomean`` or ``worst`` of the cases.
        at_least: see ``limit``.
        acceptance: acceptance of the cases.
        min_batch: smallest batch size that counts.
    """

    title: str
    kind: str
    figure: str
    limit: float
    by: str
    at_least: bool
    acceptance: str = "all"
    min_batch: int = 1

    @property
    def comparison(self) -> str:
        """The limit with its sign."""
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"


AIMS = (
    Aim("times a bare argmax", "greedy", "argmax", 1.25, "worst", at_least=False),
    Aim("times faster than vLLM", "greedy", "vllm", 4, "geomean", at_least=True),
    Aim("times faster than vLLM", "top-p", "vllm", 15, "geomean", at_least=True),
    Aim("times faster than vLLM", "plain", "vllm", 8, "geomean", at_least=True),
    *(
        Aim(
            f"of the read bandwidth at B >= {LARGE_BATCH}",
            kind,
            SHARE,
            0.4,
            "worst",
            at_least=True,
            min_batch=LARGE_BATCH,
        )
        for kind in BY_TOKEN_RULE_KINDS
    ),
    *(
        Aim("times the token rule", kind, "token rule", 1.3, "worst", False, acceptance)
        for kind in BLOCK_KINDS
        for acceptance in ("all", "mixed")
    ),
    *(
        Aim("times the token rule", kind, "token rule", 1.3, "worst", False)
        for kind in SEEDED_KINDS
    ),
)


def summarise(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the judged backend's geometric means by kind, and each aim with the value reached."""
    rows, judged = record["results"], record["judged"]
    kinds = dict.fromkeys((row["kind"], row["acceptance"]) for row in rows)
    return {
        "by_kind": [_kind_summary(rows, judged, *key) for key in kinds],
        "aims": [judge(aim, rows, judged) for aim in AIMS],
    }


def _kind_summary(rows: list[Row], judged: str, kind: str, acceptance: str) -> dict[str, Any]:
    own = [row for row in rows if (row["kind"], row["acceptance"]) == (kind, acceptance)]
    found = {name: _spread(_figures(own, judged, name)) for name in (*RATIOS, SHARE)}
    return {
        "kind": kind,
        "acceptance": acceptance,
        "geomeans": {name: spread for name, spread in found.items() if spread},
    }


def judge(aim: Aim, rows: list[Row], judged: str) -> dict[str, Any]:
    """Return the value reached for ``aim``; ``met`` is None if it was not measured."""
    own = [
        row
        for row in rows
        if (row["kind"], row["acceptance"]) == (aim.kind, aim.acceptance)
        and row["batch"] >= aim.min_batch
    ]
    spread = _spread(_figures(own, judged, aim.figure))
    value = None
    if spread:
        worst = "lowest" if aim.at_least else "highest"
        value = spread["geomean" if aim.by == "geomean" else worst]
    return {
        "kind": aim.kind,
        "acceptance": aim.acceptance,
        "aim": f"{aim.comparison} {aim.title}",
        "by": aim.by,
        "value": value,
        "cases": spread,
        "met": None if value is None else (value - aim.limit) * (1 if aim.at_least else -1) >= 0,
    }


def _figures(rows: list[Row], judged: str, name: str) -> list[float]:
    """Return the median of one figure for each case that has it."""
    parts = ((row["bandwidth"] if name == SHARE else row["ratios"]) or {} for row in rows)
    found = (part.get(judged, {}).get(name) for part in parts)
    return [figure["median"] for figure in found if figure]


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "geomean": round(statistics.geometric_mean(values), 3),
        "lowest": round(min(values), 3),
        "highest": round(max(values), 3),
        "cases": len(values),
    }


def format_row(row: Row, judged: str) -> str:
    """Return one case as a line."""
    parts = [f"{row['kind']:20} V={row['vocab']:<6} B={row['batch']:<3} {row['acceptance']:5}"]
    parts += [
        f"{name} {Summary(**row['milliseconds'][name]).median:.3f} ms"
        for name in row["milliseconds"]
        if not name.startswith("read")
    ]
    parts += [
        f"{'/ ' if name in ('argmax', 'token rule') else 'x'}{name} {Summary(**ratio)}"
        for name, ratio in row["ratios"].get(judged, {}).items()
    ]
    if share := (row["bandwidth"] or {}).get(judged, {}).get(SHARE):
        parts.append(f"{share['median']:.0%} of {row['read']['gb_per_s']['median']:.1f} GB/s")
    parts += [f"{name} skipped: it {why}" for name, why in row["skipped"].items()]
    return "  ".join(parts)


def format_summary(record: Mapping[str, Any]) -> str:
    """Return geometric means, overheads and aims, one per line."""
    return "\n".join(
        [
            *_geomean_lines(record),
            *_overhead_lines(record),
            *aim_lines(record),
            *_busy_lines(record),
        ]
    )


def _busy_lines(record: Mapping[str, Any]) -> Iterator[str]:
    shares = [row["cpu_share"] for row in record["results"] if row["cpu_share"] is not None]
    # Threads that wait for one another spin, so with several threads the share says nothing.
    share = statistics.median(shares) if shares and record["plan"]["threads"] == 1 else 1.0
    load = (record["provenance"]["machine"]["load"] or [0.0])[0]
    if share < QUIET or load > QUIET_LOAD:
        yield (
            f"the machine was busy: load {load:g} at the start, {share:.0%} of a processor for "
            "this process while it measured; repeat it on a quiet one"
        )


def _geomean_lines(record: Mapping[str, Any]) -> Iterator[str]:
    yield f"geometric means of backend {record['judged']} (lowest-highest case):"
    for entry in record["summary"]["by_kind"]:
        figures = "  ".join(
            f"{name} {spread['geomean']:.2f} ({spread['lowest']:.2f}-{spread['highest']:.2f})"
            for name, spread in entry["geomeans"].items()
        )
        yield f"  {entry['kind']:20} {entry['acceptance']:5}  {figures}"


def _overhead_lines(record: Mapping[str, Any]) -> Iterator[str]:
    for entry in record["overhead"]:
        times = {name: value["median"] for name, value in entry["microseconds"].items()}
        yield (
            f"checks of arguments, {entry['kind']} V={entry['vocab']} B={entry['batch']}: "
            f"{times['checks']:.1f} us of {times['whole']:.1f} us "
            f"({entry['checks_share']['median']:.0%}); uniforms drawn apart: "
            f"{times['uniforms']:.1f} us"
        )


def aim_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each aim."""
    words = {True: "met", False: "missed", None: "not measured"}
    for aim in record["summary"]["aims"]:
        text = f"{words[aim['met']]}: {aim['kind']}, accepted {aim['acceptance']}: {aim['aim']}"
        if cases := aim["cases"]:
            spread = f"{cases['lowest']:.2f}-{cases['highest']:.2f}, cases: {cases['cases']}"
            other = "" if aim["by"] == "geomean" else f"geomean {cases['geomean']:.2f}, "
            text += f"; {aim['by']} {aim['value']:.2f} ({other}{spread})"
        yield text
