"""Answers without speculation, worked out once for all processes of a session of pytest."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock


class Answers:
    """Greedy answers by engine, by what is asked for, and by text.

    Whatever runs beside a request, its answer is the same: test_greedy_equality.py looks at that.

    Args:
        folder: of the session.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def get(
        self,
        texts: Sequence[str],
        asked: Mapping[str, Any],
        answer: Callable[[Sequence[str]], Sequence[Any]],
    ) -> list[Any]:
        """Return the answers to some texts.

        Args:
            texts: what to go on from.
            asked: what the engine is, and what it is asked for.
            answer: returns those answers that are not there yet.
        """
        name = hashlib.sha256(repr(sorted(asked.items())).encode()).hexdigest()
        path = self._folder / f"{name}.pickle"
        with FileLock(path.with_suffix(".lock")):
            known = pickle.loads(path.read_bytes()) if path.is_file() else {}
            if missing := [text for text in texts if text not in known]:
                known.update(zip(missing, answer(missing), strict=True))
                path.write_bytes(pickle.dumps(known))
        return [known[text] for text in texts]
