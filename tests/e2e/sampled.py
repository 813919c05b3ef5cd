"""Sampled requests with a seed, of many kinds, and what they are answered without speculation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "size": {"type": "integer"}},
    "required": ["name", "size"],
    "additionalProperties": False,
}


def kinds() -> list[dict[str, Any]]:
    """Return what requests ask for, new objects each time: vLLM changes those of a grammar."""
    return [
        {"temperature": 0.7},
        {"temperature": 1.0, "top_p": 0.9},
        {"temperature": 1.5, "top_k": 20},
        {"temperature": 1.0, "min_p": 0.05},
        {"temperature": 0.7, "repetition_penalty": 1.15, "presence_penalty": 0.2},
        {"temperature": 1.0, "logit_bias": {11: 2.0, 262: -3.0}, "bad_words": ["self", "def"]},
        {"temperature": 1.5, "top_p": 0.8, "frequency_penalty": 0.3, "min_tokens": 9},
        {"temperature": 1.0, "structured_outputs": {"regex": r"[a-z]{3,9}( [a-z]{3,9}){12}"}},
        {"temperature": 0.7, "top_k": 50, "structured_outputs": {"json": SCHEMA}},
    ]


def requests(count: int, max_tokens: int = 64, **options: Any) -> list[SamplingParams]:
    """Return ``count`` requests, each with a seed of its own and another kind than its neighbours.

    Args:
        count: how many.
        max_tokens: the most tokens of an answer.
        options: further parameters of all requests.
    """
    asked = []
    for index in range(count):
        own = kinds()[index % len(kinds())]
        grammar = own.pop("structured_outputs", None)
        if grammar is not None:
            own["structured_outputs"] = StructuredOutputsParams(**grammar)
        ends = grammar is not None or "min_tokens" in own
        own |= {"seed": 1000 + index, "max_tokens": max_tokens, "ignore_eos": not ends}
        asked.append(SamplingParams(**own, **options))
    return asked


def ask(
    llm: Any, prompts: Sequence[str], batch: int | None = None, **options: Any
) -> list[list[int]]:
    """Return the tokens of the answers to :func:`requests`, ``batch`` of them at a time."""
    asked, answers = requests(len(prompts), **options), []
    batch = batch or len(prompts)
    for first in range(0, len(prompts), batch):
        place = slice(first, first + batch)
        outputs = llm.generate(prompts[place], asked[place], use_tqdm=False)
        answers += [list(output.outputs[0].token_ids) for output in outputs]
    return answers
