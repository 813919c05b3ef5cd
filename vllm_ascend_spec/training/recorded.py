"""Answers that were recorded with their prompts: those of the same target are taken as they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from vllm_ascend_spec.training.answer_file import Answer, AnswerFile
from vllm_ascend_spec.training.answers import BATCH, batched
from vllm_ascend_spec.training.prompts import Prompt


def take_recorded(
    prompts: Iterable[Prompt],
    file: AnswerFile,
    target: str,
    max_model_len: int,
    held_out: Collection[tuple[int, ...]] = (),
) -> int:
    """Put the target's recorded answers into a file, and return how many are new there.

    Args:
        prompts: those with an answer and others.
        file: gets the answers.
        target: hash of the target; what another one answered is left to be asked again.
        max_model_len: limit of prompt and answer together; a longer answer is cut.
        held_out: tokens of prompts whose answers are not taken.
    """
    before = len(file)
    for answers in batched(_found(prompts, target, max_model_len, held_out), BATCH):
        file.append(answers)
    return len(file) - before


def _found(
    prompts: Iterable[Prompt],
    target: str,
    max_model_len: int,
    held_out: Collection[tuple[int, ...]],
) -> Iterator[Answer]:
    for prompt in prompts:
        made, room = prompt.recorded, max_model_len - len(prompt.token_ids)
        if made is None or made.target != target or room < 1 or prompt.token_ids in held_out:
            continue
        reason = made.finish_reason if len(made.token_ids) <= room else "length"
        yield Answer(prompt.id, prompt.token_ids, made.token_ids[:room], reason)
