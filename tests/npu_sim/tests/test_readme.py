"""The README's Python and its last command, run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import torch
from npu_sim.references import fused_infer_limits

README = (Path(__file__).parents[1] / "README.md").read_text()


def block_that_begins(first_line: str) -> str:
    """Return the README's Python block with this first line."""
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    (found,) = (block for block in blocks if block.splitlines()[0] == first_line)
    return found


def test_counting() -> None:
    names: dict[str, object] = {"verify": lambda *_: torch.ones(2, device="npu") + 1}
    exec(block_that_begins("from npu_sim import counters").replace("(...)", "()"), names)
    seen = names["seen"]
    assert seen.ops_launched > 0
    assert seen.custom == {"draft_tokens": 24}


def test_the_command_that_tries_it() -> None:
    (line,) = re.findall(r"^python -c .*$", README, re.MULTILINE)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-c", line],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    assert "tensor([2., 2.]" in result.stdout


def test_the_limits_of_fused_attention() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| .*? \| (.*?) ?\|$", README, re.MULTILINE))
    listed = {name: rows.get(name) for name in fused_infer_limits.LIMITS}
    assert listed == {name: fused_infer_limits.ALLOWED.get(name, "") for name in listed}
