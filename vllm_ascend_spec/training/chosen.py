"""The prompts that a training uses: those of its first start, though their folder grows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from vllm_ascend_spec.training.atomic import write_whole
from vllm_ascend_spec.training.output import Output


def hash_of(ids: Iterable[str]) -> str:
    """Return a short hash that says which prompts there are."""
    return hashlib.sha256(" ".join(sorted(ids)).encode()).hexdigest()[:16]


def save_chosen(output: Output, ids: Iterable[str]) -> None:
    """Write which prompts are used."""
    text = json.dumps(sorted(ids))
    write_whole(output.prompts, lambda temporary: temporary.write_text(text))


def read_chosen(output: Output) -> set[str] | None:
    """Return the ids of the prompts that are used, or None if none were chosen yet."""
    if not output.prompts.exists():
        return None
    return set(json.loads(output.prompts.read_text()))
