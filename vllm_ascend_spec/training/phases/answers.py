"""The first phase: the target's own answers to the prompts.

Some prompts are held out, so that the head can be measured on what it never saw. Their tokens are
written last; so where they are, the phase is done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.answer_file import AnswerFile, open_answers
from vllm_ascend_spec.training.answers import BATCH, Outcome, Target, answer_prompts
from vllm_ascend_spec.training.atomic import write_whole
from vllm_ascend_spec.training.chosen import read_chosen
from vllm_ascend_spec.training.engine import Model, read_model, start_engine
from vllm_ascend_spec.training.output import OPTION, Output
from vllm_ascend_spec.training.prompt_files import read_prompts
from vllm_ascend_spec.training.prompts import Prompt, split_held_out
from vllm_ascend_spec.training.recorded import take_recorded
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.speculation import with_head, without_head
from vllm_ascend_spec.training.tokens import tokenize

NAME = "answers"
PROMPTS = "--prompts"
# Engine arguments that change what the target answers. Speculation does not.
CHANGE_ANSWERS = ("hf_overrides", "kv_cache_dtype", "load_format", "quantization", "tokenizer")
Tokens = tuple[int, ...]


def is_done(settings: Settings) -> bool:
    """Tell whether the phase ended."""
    return Output(settings.output).held_out.exists()


def run(settings: Settings, show: Callable[[str], object]) -> None:
    """Let the target answer what it has not answered yet.

    Args:
        settings: what was asked for.
        show: takes a line for the person who waits.

    Raises:
        ConfigError: a prompt cannot be used, or the folder's answers were made otherwise.
    """
    output = Output(settings.output)
    if is_done(settings):
        show(f"{NAME}: all were given in an earlier start")
        return
    train, held_out = split_held_out((each.id for each in read_all(settings)), settings.holdout)
    model = read_model(settings)
    tokens = _held_out_tokens(settings, model, held_out)
    with open_answers(OPTION, output.answers, _made_by(settings, model)) as file:
        outcome = _answer(settings, model, train, set(tokens), file, show)
    if too_long := outcome.too_long + len(held_out) - len(tokens):
        show(
            f"{NAME}: {too_long:,} of {len(train) + len(held_out):,} prompts are left out: of "
            f"--max-model-len={settings.max_model_len} tokens or more"
        )
    text = json.dumps(tokens)
    write_whole(output.held_out, lambda temporary: temporary.write_text(text))


def read_all(settings: Settings) -> Iterator[Prompt]:
    """Yield the prompts of all files and folders, each once; not those that came later."""
    seen: set[str] = set()
    chosen = read_chosen(Output(settings.output))
    for path in settings.prompts:
        for prompt in read_prompts(PROMPTS, path):
            if prompt.id not in seen and (chosen is None or prompt.id in chosen):
                seen.add(prompt.id)
                yield prompt


def _answer(
    settings: Settings,
    model: Model,
    train: set[str],
    held_out: set[Tokens],
    file: AnswerFile,
    show: Callable[[str], object],
) -> Outcome:
    found = len(file)
    taken = take_recorded(
        _prompts(settings, model, train), file, model.hash, settings.max_model_len, held_out
    )
    recorded = f", and {taken:,} more were recorded with them" if taken else ""
    show(f"{NAME}: {found:,} of {len(train):,} prompts are answered{recorded}")
    usual = {"speculative_config": speculation(settings)}
    target = Target(
        partial(start_engine, settings, usual, {}), model.tokenizer, settings.max_model_len
    )
    prompts = _prompts(settings, model, train)
    return answer_prompts(
        target, prompts, file, settings.sampling, len(train), show, BATCH, held_out
    )


def speculation(settings: Settings) -> dict[str, Any]:
    """Return the ``speculative_config`` of the engine that answers."""
    if settings.begin_with is None:
        return without_head()
    return with_head(settings.method, settings.begin_with, settings.num_speculative_tokens)


def _made_by(settings: Settings, model: Model) -> dict[str, Any]:
    engine = {name: settings.engine[name] for name in CHANGE_ANSWERS if name in settings.engine}
    return {
        "target": model.hash,
        "dtype": model.dtype,
        "max_model_len": settings.max_model_len,
        **settings.sampling.made_by(),
        **engine,
    }


def _prompts(settings: Settings, model: Model, wanted: set[str]) -> Iterator[Prompt]:
    """Yield some of the prompts; tokens that the target does not have are refused."""
    for prompt in read_all(settings):
        if prompt.id not in wanted:
            continue
        if max(prompt.token_ids, default=0) >= model.vocab_size:
            raise prompt.place.wrong(
                f"has token {max(prompt.token_ids)}, which the target does not have",
                f"valid: 0 to {model.vocab_size - 1}",
            )
        yield prompt


def _held_out_tokens(settings: Settings, model: Model, held_out: set[str]) -> list[Tokens]:
    """Return the tokens of the held-out prompts in the order of their ids.

    Raises:
        ConfigError: none of them leaves room for an answer.
    """
    prompts = sorted(_prompts(settings, model, held_out), key=lambda prompt: prompt.id)
    tokens = [tuple(tokenize(prompt, model.tokenizer)) for prompt in prompts]
    found = [each for each in tokens if len(each) < settings.max_model_len]
    if not found:
        problem = (
            f"all {len(tokens):,} prompts held out have --max-model-len={settings.max_model_len} "
            "tokens or more; valid: a larger limit, or more prompts"
        )
        raise ConfigError("--holdout", settings.holdout, problem)
    return found
