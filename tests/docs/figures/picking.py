"""``examples/zoo/picking.py``: tokens per step by how drafts are picked, and by rule."""

from __future__ import annotations

import json
from collections.abc import Iterator

from examples.zoo import evaluate
from tests.docs.figures.rows import Record, row

RECORD = evaluate.ZOO / "picking.json"
NAMES = {"mtp, DeepSeek": "`mtp`, DeepSeek", "mtp, MiMo": "`mtp`, MiMo"}
SHOWN = ("eagle", "mtp, DeepSeek", "draft_model", "dflash", "medusa")
GREEDY, SAMPLED = "greedy", "probabilistic"
TOKEN, SEEDED = "token", "seeded"


def _results() -> dict[str, Record]:
    return json.loads(RECORD.read_text())["results"]


def _name(draft: str) -> str:
    return NAMES.get(draft, f"`{draft}`")


def by_picking() -> Iterator[str]:
    """Yield greedy and sampled drafts of requests without a seed."""
    results = _results()
    for draft in SHOWN:
        greedy, drawn = (results[draft][how][TOKEN] for how in (GREEDY, SAMPLED))
        cells = (f"{greedy[request]:.2f} / {drawn[request]:.2f}" for request in greedy)
        yield row(_name(draft), *cells)


def by_rule() -> Iterator[str]:
    """Yield the token rule and the rule for seeds, of sampled drafts."""
    for draft, result in _results().items():
        token, seeded = (result[SAMPLED][rule] for rule in (TOKEN, SEEDED))
        requests = [request for request in token if request != "T=0.2"]
        cells = (f"{token[request]:.2f} → {seeded[request]:.2f}" for request in requests)
        yield row(_name(draft), *cells)
