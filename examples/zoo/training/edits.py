"""Prompts that ask for an edited copy, and the answers: what drafts from a text are for.

Each prompt shows some lines of a held-out file, then the same lines once more with a name changed,
up to a point in their midst; its answer is the rest of them. The zoo's target is too small to copy
(of 48 tokens it gets 2 right), so a grammar that allows this answer alone has to lead it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from .prompts import MIN_FILE_CHARS, cut

NUM_PROMPTS = 24
CHARS = 640
STARTS = (0.3, 0.6)
# Where the second copy breaks off.
SHOWN_AGAIN = 0.3
# Of two words, so that it is no word of a comment.
NAME = re.compile(r"\b_?[a-z]+(?:_[a-z]+)+\b")
NEW_NAMES = ("value", "index", "number", "result", "current", "entry")


def edit(text: str, new: str) -> dict[str, str] | None:
    """Return a request for ``text`` with its most frequent name changed to ``new``.

    Args:
        text: whole lines but for the last.
        new: the name.

    Returns:
        ``prompt`` and ``answer``; None where no name comes twice.
    """
    lines = text.split("\n")[:-1]
    body = "\n".join(lines)
    names = Counter(NAME.findall(body))
    old, times = names.most_common(1)[0] if names else ("", 0)
    if times < 2:
        return None
    again = re.sub(rf"\b{old}\b", new, body).split("\n")
    place = max(2, int(len(again) * SHOWN_AGAIN))
    shown, rest = "\n".join(again[:place]), "\n".join(["", *again[place:]])
    return {"prompt": f"{body}\n\n\n# With {new} for {old}:\n\n{shown}", "answer": rest}


def write(work: Path, out: Path) -> None:
    """Write ``edits.json``: one request a file in turn, as for ``prompts.json``."""
    held = json.loads((work / "held.json").read_text()).values()
    texts = [cut(text, start, CHARS) for start in STARTS for text in held if is_long(text)]
    made = [edit(text, NEW_NAMES[i % len(NEW_NAMES)]) for i, text in enumerate(texts)]
    edits = [one for one in made if one is not None][:NUM_PROMPTS]
    (out / "edits.json").write_text(json.dumps(edits, indent=1) + "\n")
    print(f"edits: {len(edits)}", flush=True)


def is_long(text: str) -> bool:
    """Tell whether a file is long enough to begin anywhere in it."""
    return len(text) >= MIN_FILE_CHARS
