"""``EngineArgs`` takes the keyword arguments of older guides, and says the new form."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest
import vllm
from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs

import vllm_ascend_spec
from tests.patches.cases import TakeOut
from tests.zoo import SPECS, TARGET
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.hooks import keywords_hook

NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 5,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 1,
}
OLD = {
    "speculative_model": "[ngram]",
    "num_speculative_tokens": 5,
    "ngram_prompt_lookup_max": 4,
    "use_v2_block_manager": True,
}
CLASSES = pytest.mark.parametrize("kind", [EngineArgs, AsyncEngineArgs])


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged, which is each line once in a process; with the hook in place."""
    # Only the first engine of a process loads plugins.
    keywords_hook.apply()
    lines: list[str] = []
    monkeypatch.setattr(keywords_hook, "log_once", lambda _level, text: lines.append(text))
    return lines


@CLASSES
def test_stock_fault_and_patch(kind: Any, take_out: TakeOut) -> None:
    take_out(keywords_hook)
    with pytest.raises(TypeError, match="unexpected keyword argument 'speculative_model'"):
        kind(model=TARGET, **OLD)
    keywords_hook.apply()
    assert kind(model=TARGET, **OLD).speculative_config == NGRAM


@CLASSES
def test_the_model_may_come_first(kind: Any, told: list[str]) -> None:
    layers = SPECS["mtp"]["model"]
    args = kind(layers, num_speculative_tokens=2)
    assert args.model == layers
    assert args.speculative_config == {"method": "mtp", "num_speculative_tokens": 2}
    (line,) = told
    assert line.startswith(
        "Old names of options: num_speculative_tokens. Today: speculative_config="
    )


def test_nothing_else_changes(told: list[str]) -> None:
    args = EngineArgs(model=TARGET, speculative_config=dict(NGRAM), seed=3)
    assert (args.speculative_config, args.seed) == (NGRAM, 3)
    assert told == []
    with pytest.raises(TypeError, match=r"EngineArgs.__init__\(\) got an unexpected keyword.*'no'"):
        EngineArgs(model=TARGET, no=1)
    with pytest.raises(TypeError, match="multiple values for argument 'model'"):
        EngineArgs(TARGET, model=TARGET)
    names = list(inspect.signature(EngineArgs).parameters)
    assert names == [field.name for field in fields(EngineArgs)]


@pytest.mark.parametrize("beside", [{"speculative_config": NGRAM}, {"spec_method": "ngram"}])
def test_contradictions_are_refused(beside: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^speculative_model='\[ngram\]': contradicts"):
        EngineArgs(model=TARGET, **OLD, **beside)


def test_our_llm_is_vllms() -> None:
    assert vllm_ascend_spec.LLM is vllm.LLM


def test_a_process_that_has_not_imported_vllm() -> None:
    """vLLM loads its general plugins behind the first EngineArgs, which would be too late."""
    text = (
        "import vllm\n"
        "from vllm.engine.arg_utils import EngineArgs\n"
        f"print(EngineArgs(model={TARGET!r}, **{OLD!r}).speculative_config == {NGRAM!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "VLLM_LOGGING_LEVEL": "INFO"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.endswith("True\n"), done.stderr
    assert done.stderr.count("Old names of options") + done.stdout.count("Old names of") == 1
