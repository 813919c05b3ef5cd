"""Which tables there are, and how a page is filled with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from tests.docs.figures import device_counts, draft_length, serving, steps, verification

# The comment and the header, the table's name, and the rows.
TABLE = re.compile(r"(<!-- figures: (\S+) -->\n\|.*\n\|[-|]+\n)((?:\|.*\n)*)")
CHINESE = {" clients, ": " 个并发, ", "alternating": "交替负载", "none": "不投机"}
ENGLISH = {"1 clients": "1 client"}
STOCK, OLDER = "vLLM 0.32.0", "vLLM 0.30.0 with this package"

TABLES: Mapping[str, Callable[[], Iterator[str]]] = {
    "draft-length-auto": draft_length.rows,
    "serving": partial(serving.rows, "serve-cpu"),
    "serving-peer": partial(serving.rows, "serve-cpu-peer", (STOCK, OLDER)),
    "serving-peer-avx2": partial(serving.rows, "serve-cpu-peer-avx2", (STOCK,)),
    "step": steps.parts,
    "overhead": steps.overhead,
    "verification": verification.to_peers,
    "verification-cuda": verification.on_a_gpu,
    "block-rule": verification.block_rule,
    "device-counts": device_counts.rows,
}


def filled(text: str, words: Mapping[str, str]) -> str:
    """Return a page's text with the rows of its tables made anew, and their words replaced."""

    def table(found: re.Match[str]) -> str:
        rows = "".join(TABLES[found[2]]())
        for word, other in words.items():
            rows = rows.replace(word, other)
        return found[1] + rows

    return TABLE.sub(table, text)


def words_of(page: str) -> Mapping[str, str]:
    """Return what the rows' words are in a page's language, by its file's name."""
    return CHINESE if page.endswith(".zh.md") else ENGLISH
