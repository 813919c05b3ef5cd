"""What phases a and b leave, of texts that are there, by a target that transformers runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.zoo import ZOO
from vllm_ascend_spec.training.answer_file import Answer, open_answers
from vllm_ascend_spec.training.output import Output
from vllm_ascend_spec.training.samples import make_sample
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.shard_layout import Layout
from vllm_ascend_spec.training.shards import open_writer

# Of a text these are the prompt, the rest is the answer.
PROMPT_TOKENS = 8


def texts(count: int) -> list[str]:
    """Return texts of the zoo's."""
    found: list[str] = json.loads((ZOO / "prompts.json").read_text())
    return found[:count]


def write_inputs(settings: Settings, lines: Iterable[str], *, shuffled: bool = False) -> None:
    """Write settings, answers and hidden states.

    Args:
        settings: model, layers and output are read.
        lines: texts.
        shuffled: give each token the states of another one of its text.
    """
    output = Output(settings.output)
    output.folder.mkdir(parents=True)
    settings.save(output.settings)
    target = AutoModelForCausalLM.from_pretrained(settings.model, dtype=torch.float32).eval()
    depth, width = target.config.num_hidden_layers, target.config.hidden_size
    layers = tuple(sorted({*settings.layers, depth}))
    layout = Layout("target", layers, width, "bfloat16")
    with (
        open_answers("--output", output.answers, {}) as answers,
        open_writer("--output", output.states, layout) as store,
    ):
        for answer, states in _run(target, settings.model, lines, layers):
            answers.append([answer])
            order = torch.randperm(len(states)) if shuffled else torch.arange(len(states))
            token_ids = torch.tensor(answer.all_token_ids())
            store.add(make_sample(answer, token_ids, states[order].bfloat16()))


@torch.no_grad()
def _run(
    target: Any, folder: Path, lines: Iterable[str], layers: tuple[int, ...]
) -> Iterator[tuple[Answer, torch.Tensor]]:
    """Yield each text with its states [num_tokens, num_layers, hidden_size], before the norm."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    seen: dict[int, torch.Tensor] = {}
    for number, layer in enumerate(target.model.layers, 1):
        layer.register_forward_hook(lambda *call, n=number: seen.update({n: call[-1]}))
    for line in lines:
        ids = tokenizer(line)["input_ids"]
        target(torch.tensor([ids]))
        prompt, rest = tuple(ids[:PROMPT_TOKENS]), tuple(ids[PROMPT_TOKENS:])
        name = hashlib.md5(line.encode(), usedforsecurity=False).hexdigest()
        yield Answer(name, prompt, rest, "stop"), torch.stack([seen[n][0] for n in layers], 1)
