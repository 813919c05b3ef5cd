"""What the tests of ``train`` give it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.zoo import ZOO

TARGET, HEAD = str(ZOO / "target"), str(ZOO / "eagle3")
PROMPTS = [f"prompt {number}" for number in range(40)]
Run = Callable[..., tuple[int, str, str]]


def variant(folder: Path, **changes: Any) -> Path:
    """Make a target of another config; None takes a key out."""
    folder.mkdir()
    for path in (ZOO / "target").iterdir():
        if path.name != "config.json":
            (folder / path.name).symlink_to(path)
    config = {**json.loads((ZOO / "target" / "config.json").read_text()), **changes}
    text = json.dumps({key: value for key, value in config.items() if value is not None})
    (folder / "config.json").write_text(text)
    return folder
