"""Prompts from held-out files, for the demo, the tests and the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

NUM_PROMPTS = 64
PROMPT_CHARS = 320
MIN_FILE_CHARS = 3000
# Where in a file a prompt may start; beginnings are mostly licence texts and imports.
STARTS = (0.15, 0.45, 0.75)


def cut(text: str, start: float, chars: int = PROMPT_CHARS) -> str:
    """Return about ``chars`` characters of ``text``, whole lines but for the last."""
    begin = text.index("\n", int(len(text) * start)) + 1
    return text[begin : begin + chars].rstrip()


def write(work: Path, out: Path) -> None:
    """Write ``prompts.json``: one prompt a file in turn, so that no file dominates."""
    texts = list(json.loads((work / "held.json").read_text()).values())
    texts = [text for text in texts if len(text) >= MIN_FILE_CHARS]
    prompts = [cut(text, start) for start in STARTS for text in texts][:NUM_PROMPTS]
    out.mkdir(parents=True, exist_ok=True)
    (out / "prompts.json").write_text(json.dumps(prompts, indent=1) + "\n")
    print(f"prompts: {len(prompts)} from {len(texts)} held-out files", flush=True)
