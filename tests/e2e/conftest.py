"""Engines on the zoo's checkpoints, in this process; built once and shared."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from vllm_ascend_spec.config.methods import METHODS

ZOO = Path(__file__).parents[2] / "examples" / "zoo"
TARGET = str(ZOO / "target")
SPECS: dict[str, dict[str, Any]] = {
    "eagle": {"method": "eagle", "model": str(ZOO / "eagle"), "num_speculative_tokens": 3},
    "draft_model": {
        "method": "draft_model",
        "model": str(ZOO / "draft"),
        "num_speculative_tokens": 3,
    },
    "ngram": {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
    },
    "custom_class": {
        "method": "custom_class",
        "model": "examples.custom_proposer.RecentFollower",
        "num_speculative_tokens": 3,
    },
}
WITH_A_LOOP = [name for name in SPECS if METHODS[name].has_draft_loop]
# Method and how its drafts are picked.
WAYS_TO_DRAFT = [
    (name, how)
    for name in SPECS
    for how in ("greedy", "probabilistic")
    if how == "greedy" or METHODS[name].can_sample_drafts
]
ENGINE: dict[str, Any] = {
    "model": TARGET,
    "dtype": "float32",
    "max_model_len": 512,
    "max_num_seqs": 8,
    "enforce_eager": True,
    "disable_log_stats": False,
    "seed": 0,
    # About 9,000 tokens. The environment variable VLLM_CPU_KVCACHE_SPACE knows whole GiB only.
    "kv_cache_memory_bytes": 128 << 20,
}

MakeEngine = Callable[..., Any]
Generate = Callable[..., list[Any]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is an end-to-end test."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def prompts() -> list[str]:
    """The held-out prompts, about a hundred tokens each."""
    return json.loads((ZOO / "prompts.json").read_text())


@pytest.fixture(scope="module")
def make_engine() -> Iterator[MakeEngine]:
    """Return ``make(spec=None, **arguments) -> LLM``; equal arguments give the same engine.

    Engines live as long as the module; without shutdown() vLLM's globals keep their memory.
    """
    engines: dict[str, Any] = {}

    def make(spec: dict[str, Any] | None = None, **arguments: Any) -> Any:
        from vllm import LLM

        key = json.dumps([spec, arguments], sort_keys=True, default=repr)
        if key not in engines:
            # vLLM fills what it is given, so it gets a copy.
            given = None if spec is None else dict(spec)
            engines[key] = LLM(**{**ENGINE, **arguments}, speculative_config=given)
        return engines[key]

    yield make
    with pytest.MonkeyPatch.context() as patch:
        # Each shutdown collects all garbage twice, half a second each; once for all is enough.
        patch.setattr(gc, "collect", lambda *_: 0)
        for llm in engines.values():
            llm.llm_engine.engine_core.shutdown()
    engines.clear()
    gc.collect()


@pytest.fixture(scope="session")
def generate() -> Generate:
    """Return ``generate(llm, prompts, batch, **sampling) -> outputs``, ``batch`` at a time."""

    def run(llm: Any, texts: Sequence[str], batch: int = 8, **sampling: Any) -> list[Any]:
        from vllm import SamplingParams

        parameters = SamplingParams(
            **{"temperature": 0, "max_tokens": 64, "ignore_eos": True, **sampling}
        )
        outputs = []
        for first in range(0, len(texts), batch):
            outputs += llm.generate(texts[first : first + batch], parameters, use_tqdm=False)
        return [output.outputs[0] for output in outputs]

    return run


def drafting(method: str, how: str) -> dict[str, Any]:
    """Return the spec of a method whose drafts are picked so; "greedy" is the default."""
    return SPECS[method] | ({} if how == "greedy" else {"draft_sample_method": how})


def token_ids(outputs: Sequence[Any]) -> list[list[int]]:
    """Return the token ids of some outputs."""
    return [list(output.token_ids) for output in outputs]


def assert_same(actual: list[list[int]], expected: list[list[int]]) -> None:
    """Compare token by token and show where the first difference of each answer is."""
    different = {
        index: next(
            (place for place, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
            min(len(ours), len(theirs)),
        )
        for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True))
        if ours != theirs
    }
    assert not different, f"answers that differ, and from which token on: {different}"
