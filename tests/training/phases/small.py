"""A small ``train``: prompts of every kind for the tests' target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.zoo import TARGET
from vllm_ascend_spec.training.answers import Sampling
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.target import target_hash

MAX_MODEL_LEN = 160
# Texts of 10 to about 150 tokens.
TEXTS = [f"def function_{n}(" + "value, " * (n * 9 % 50) for n in range(9)]
TOO_LONG = "x = 2\n" * MAX_MODEL_LEN
CHAT = {"messages": [{"role": "user", "content": "def add(a, b):"}]}
# The target would not answer this.
RECORDED = {
    "prompt_token_ids": [9, 8, 7, 5],
    "token_ids": [400, 5, 300, 6],
    "finish_reason": "stop",
    "target": target_hash(Path(TARGET)),
}
OTHERS_ANSWER = {**RECORDED, "prompt_token_ids": [7, 8, 9], "target": "another"}
RECORDS = [{"prompt": text} for text in (*TEXTS, TOO_LONG)] + [CHAT, RECORDED, OTHERS_ANSWER]
ENGINE = {
    "enforce_eager": True,
    "kv_cache_memory_bytes": 64 << 20,
    "max_num_seqs": 4,
    # Fewer than a prompt has, so that it is read in pieces.
    "max_num_batched_tokens": 48,
}


def write_settings(output: Path, **changes: Any) -> Settings:
    """Write prompts and settings for a new output folder, and return the settings."""
    output.mkdir(parents=True)
    prompts = output.with_name("prompts.jsonl")
    prompts.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    # Those of tests/e2e/states.py but the last one, which is stored without being asked for.
    usual: dict[str, Any] = {
        "model": Path(TARGET),
        "method": "eagle3",
        "prompts": (prompts,),
        "output": output,
        "holdout": 2,
        "sampling": Sampling(max_tokens=24),
        "max_model_len": MAX_MODEL_LEN,
        "dtype": "float32",
        "layers": (0, 1, 2),
        "engine": ENGINE,
    }
    settings = Settings(**{**usual, **changes})
    settings.save(Output(output).settings)
    return settings
