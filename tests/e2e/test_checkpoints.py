"""What the checks of a draft's checkpoint pass, vLLM loads; what they refuse starts nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.variants import (
    in_order,
    join,
    rotary_buffers,
    untie,
    without_embedding,
    wrap,
    zero_bias,
)
from tests.config.damage import DAMAGE, EAGLE_DAMAGE, shard
from tests.engines import ENGINE, Generate, MakeEngine, token_ids
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.errors import CheckpointError

VARIANTS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "eagle": (
        "eagle",
        in_order(without_embedding, rotary_buffers, join, wrap, shard),
    ),
    "draft_model": ("draft", in_order(untie, zero_bias, rotary_buffers, shard)),
}


def copy_of(name: str, folder: Path) -> Path:
    """Return a copy of a checkpoint of the zoo that may be changed."""
    shutil.copytree(Path(TARGET).parent / name, folder, copy_function=shutil.copyfile)
    return folder


def accepted(llm: Any) -> int:
    """Return how many drafts an engine has accepted in its life."""
    name = "vllm:spec_decode_num_accepted_tokens"
    return sum(metric.value for metric in llm.get_metrics() if metric.name == name)


@pytest.mark.parametrize("method", VARIANTS)
def test_variant_that_passes_drafts_as_the_original(
    method: str, tmp_path: Path, make_engine: MakeEngine, generate: Generate, prompts: list[str]
) -> None:
    """Same weights in another form: the same answers, and as many drafts accepted."""
    name, change = VARIANTS[method]
    folder = copy_of(name, tmp_path / "draft")
    change(folder)
    counts, answers = [], []
    for spec in (SPECS[method], {**SPECS[method], "model": str(folder)}):
        llm = make_engine(spec)
        before = accepted(llm)
        answers.append(token_ids(generate(llm, prompts[:4], max_tokens=24)))
        counts.append(accepted(llm) - before)
    assert answers[0] == answers[1]
    assert counts[0] == counts[1] > 0


DAMAGED = [
    ("eagle", "cut by one byte"),
    ("eagle", "an attention tensor missing"),
    ("eagle", "an output layer"),
    ("draft_model", "int8"),
    ("draft_model", "too few layers"),
]


def damage(method: str, name: str, folder: Path) -> tuple[Path, list[str]]:
    """Return a damaged copy of a draft, and words of its message."""
    change, words = {**DAMAGE, **EAGLE_DAMAGE}[name]
    copy = copy_of(VARIANTS[method][0], folder)
    change(copy)
    return copy, words


@pytest.mark.parametrize(("method", "name"), DAMAGED)
def test_llm_refuses_before_it_loads(
    method: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm import LLM
    from vllm.v1.engine.llm_engine import LLMEngine

    def started(*_: object, **__: object) -> None:
        pytest.fail("an engine was started")

    monkeypatch.setattr(LLMEngine, "from_vllm_config", started)
    folder, words = damage(method, name, tmp_path / "draft")
    with pytest.raises(CheckpointError) as error:
        LLM(**ENGINE, speculative_config={**SPECS[method], "model": str(folder)})
    assert [word for word in words if word not in str(error.value)] == []


@pytest.mark.parametrize(("method", "name"), DAMAGED[:3])
def test_check_ends_in_one_line(method: str, name: str, tmp_path: Path) -> None:
    folder, words = damage(method, name, tmp_path / "draft")
    spec = {**SPECS[method], "model": str(folder)}
    command = [sys.executable, "-m", "vllm_ascend_spec.cli.main", "check", TARGET]
    result = subprocess.run(
        [*command, "--speculative-config", json.dumps(spec)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 2
    assert result.stdout == ""
    last = result.stderr.strip().splitlines()[-1]
    assert [word for word in words if word not in last] == []
    assert len(last) <= 300
    assert "Traceback" not in result.stderr
