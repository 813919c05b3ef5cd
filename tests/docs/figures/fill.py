"""Which tables there are, and how a page is filled with them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from tests.docs.figures import (
    commands,
    device_counts,
    draft_length,
    families,
    metrics,
    options,
    picking,
    refusals,
    serving,
    steps,
    trees,
    verification,
)

# The comment and the header, the table's name, and the rows.
TABLE = re.compile(r"(<!-- figures: (\S+) -->\n\|.*\n\|[-|]+\n)((?:\|.*\n)*)")
CHINESE = {
    " clients, ": " 个并发, ",
    "alternating": "交替负载",
    "none": "不投机",
    "fails: ": "失败：",
}
ENGLISH = {"1 clients": "1 client"}
# The reference's texts in Chinese, by the English text of a cell.
CELLS = {
    f"| {english} |": f"| {chinese} |"
    for english, chinese in json.loads(Path(__file__).with_name("chinese.json").read_text()).items()
}
METHODS = {
    "| all |": "| 全部 |",
    "| all except ": "| 全部，除了 ",
    "| those with a draft model |": "| 带草稿模型的 |",
    "| those with a draft model except ": "| 带草稿模型的，除了 ",
}
STOCK, OLDER = "vLLM 0.32.0", "vLLM 0.30.0 with this package"

# Made from the code and not from records.
REFERENCE: Mapping[str, Callable[[], Iterator[str]]] = {
    "options": options.of_speculation,
    "section": options.of_section,
    "old-names": options.old_names,
    "metrics": metrics.rows,
    "commands": commands.names,
    **commands.tables(),
    "refusals": refusals.rows,
}
TABLES: Mapping[str, Callable[[], Iterator[str]]] = {
    **REFERENCE,
    "draft-length-auto": draft_length.rows,
    "serving": partial(serving.rows, "serve-cpu"),
    "serving-peer": partial(serving.rows, "serve-cpu-peer", (STOCK, OLDER)),
    "serving-peer-avx2": partial(serving.rows, "serve-cpu-peer-avx2", (STOCK,)),
    "step": steps.parts,
    "overhead": steps.overhead,
    "verification": verification.to_peers,
    "verification-cuda": verification.on_a_gpu,
    "block-rule": verification.block_rule,
    "seeded": verification.seeded,
    "trees": trees.tokens,
    "trees-speed": trees.speed,
    "trees-counts": trees.counts,
    "picking": picking.by_picking,
    "rules": picking.by_rule,
    "device-counts": device_counts.rows,
    "families": families.rows,
}


def filled(text: str, page: str) -> str:
    """Return a page's text with the rows of its tables made anew, in its language.

    Args:
        text: of the page.
        page: name of its file.
    """

    def table(found: re.Match[str]) -> str:
        rows = "".join(TABLES[found[2]]())
        for word, other in words_of(page, found[2]).items():
            rows = rows.replace(word, other)
        return found[1] + rows

    return TABLE.sub(table, text)


def words_of(page: str, table: str) -> Mapping[str, str]:
    """Return what words of a table are in a page's language."""
    if table in REFERENCE:
        return {**CELLS, **METHODS} if page.endswith(".zh.md") else {}
    return CHINESE if page.endswith(".zh.md") else ENGLISH
