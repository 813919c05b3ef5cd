"""An output folder of ``train`` in which only the proof is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from tests.zoo import SPECS, TARGET, ZOO
from vllm_ascend_spec.training.answers import Sampling
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.settings import Settings

GOOD = Path(SPECS["eagle3"]["model"])
COUNT, MAX_TOKENS = 6, 48
ENGINE = {"enforce_eager": True, "kv_cache_memory_bytes": 64 << 20}


def set_up(output: Path, head: Path, **changes: Any) -> Settings:
    """Return settings of a folder in which only the proof is missing."""
    tokenizer = AutoTokenizer.from_pretrained(TARGET)
    texts = json.loads((ZOO / "prompts.json").read_text())[:COUNT]
    usual: dict[str, Any] = {"engine": ENGINE, **changes}
    settings = Settings(
        model=Path(TARGET),
        method="eagle3",
        prompts=(ZOO / "prompts.json",),
        output=output,
        sampling=Sampling(max_tokens=MAX_TOKENS),
        max_model_len=512,
        dtype="float32",
        **usual,
    )
    place = Output(output)
    output.mkdir()
    place.held_out.write_text(json.dumps([tokenizer(text).input_ids for text in texts]))
    shutil.copytree(head, place.head)
    settings.save(place.settings)
    return settings
