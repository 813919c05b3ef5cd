"""The third phase: the tokens of the head, from what the target's answers use."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from vllm_ascend_spec.checkpoint.config_json import read_config, text_of
from vllm_ascend_spec.training.answer_file import read_answers
from vllm_ascend_spec.training.atomic import TEMPORARY, sync_folder
from vllm_ascend_spec.training.output import OPTION, Output
from vllm_ascend_spec.training.settings import Settings
from vllm_ascend_spec.training.vocabulary import (
    DraftVocabulary,
    choose_tokens,
    count_tokens,
    special_tokens,
    tokens_of_head,
)

NAME = "vocabulary"


def is_done(settings: Settings) -> bool:
    """Return whether the tables are there, or none are asked for."""
    whole = settings.draft_vocab_size is None and settings.begin_with is None
    return whole or Output(settings.output).vocabulary.is_dir()


def run(settings: Settings, show: Callable[[str], None]) -> None:
    """Write the tables; a head to go on from keeps its own."""
    if is_done(settings):
        return
    output = Output(settings.output)
    vocabulary = _choose(settings, output)
    if vocabulary is None:
        show("draft vocabulary: the head to go on from drafts every token of the target's")
        return
    _save(vocabulary, output.vocabulary)
    show(vocabulary.describe())


def _choose(settings: Settings, output: Output) -> DraftVocabulary | None:
    size: int = text_of(read_config(settings.model))["vocab_size"]
    answers = read_answers(OPTION, output.answers)
    counts = count_tokens((each.all_token_ids(), each.loss_mask()) for each in answers)
    if settings.begin_with is not None:
        return tokens_of_head(settings.begin_with, size, counts)
    assert settings.draft_vocab_size is not None
    return choose_tokens(counts, settings.draft_vocab_size, size, special_tokens(settings.model))


def _save(vocabulary: DraftVocabulary, folder: Path) -> None:
    temporary = folder.with_name(folder.name + TEMPORARY)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    vocabulary.save(temporary)
    temporary.replace(folder)
    sync_folder(folder.parent)
