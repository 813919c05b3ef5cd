"""The reduced draft vocabulary: which tokens, which share of the text, and the two tables."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.zoo import TARGET
from vllm_ascend_spec.checkpoint.safetensors import read_tensors
from vllm_ascend_spec.checkpoint.vocabulary import check_map
from vllm_ascend_spec.errors import ConfigError
from vllm_ascend_spec.training.vocabulary import (
    DraftVocabulary,
    choose_tokens,
    count_tokens,
    special_tokens,
)


def test_only_tokens_with_a_loss_are_counted() -> None:
    samples = [([5, 6, 7, 7], [0, 1, 1, 1]), ([5, 6], [0, 0]), ([6], [True])]
    assert count_tokens(samples) == {6: 2, 7: 2}


def test_the_most_frequent_are_chosen_and_their_share_is_told() -> None:
    found = choose_tokens({9: 5, 3: 3, 4: 1, 1: 1}, 3, 10)
    assert found == DraftVocabulary((1, 3, 9), 10, 0.9, 0)
    assert found.describe() == (
        "draft vocabulary: 3 of 10 tokens, which are 90.00% of the answers' text; 0 of "
        "them are in no answer"
    )


def test_special_tokens_are_in_though_nobody_used_them() -> None:
    found = choose_tokens({9: 5, 3: 3}, 3, 10, special=[0, 7, 400, -1])
    assert found == DraftVocabulary((0, 7, 9), 10, 5 / 8, 2)


def test_the_lowest_ids_fill_it_up() -> None:
    found = choose_tokens({8: 1}, 4, 10, special=[1])
    assert (found.tokens, found.share, found.unseen) == ((0, 1, 2, 8), 1.0, 3)
    assert choose_tokens({}, 10, 10).tokens == tuple(range(10))


@pytest.mark.parametrize("size", [1, 17, 100, 300])
def test_the_tables_are_those_of_the_format(size: int, tmp_path: Path) -> None:
    drawn = random.Random(size)
    counts = Counter(min(int(drawn.expovariate(0.02)), 299) for _ in range(4000))
    found = choose_tokens(counts, size, 300, special=[0])
    d2t, t2d = (torch.from_numpy(np.load(path)) for path in found.save(tmp_path))
    assert (d2t.dtype, d2t.shape, t2d.dtype, t2d.shape) == (
        torch.int64, (size,), torch.bool, (300,),
    )  # fmt: skip
    # As vLLM scatters logits, llama_eagle3.py: compute_logits.
    assert (torch.arange(size) + d2t).tolist() == list(found.tokens)
    # As speculators gathers the target's logits and rows of its output layer: logits[:, t2d].
    assert torch.nonzero(t2d).flatten().tolist() == list(found.tokens)
    save_file({"d2t": d2t, "t2d": t2d}, tmp_path / "model.safetensors")
    if size < 300:
        check_map(read_tensors(tmp_path / "model.safetensors"), size, 300)


@pytest.mark.parametrize(
    ("size", "counts", "problem"),
    [
        (0, {}, "valid: 1 to 10, the target's vocab_size"),
        (11, {}, "valid: 1 to 10, the target's vocab_size"),
        (2, {}, "valid: 3 or more, as many as there are special tokens"),
        (5, {10: 1}, "token 10 was counted; the target's are 0 to 9"),
    ],
)
def test_a_size_that_cannot_be_is_refused(size: int, counts: dict[int, int], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        choose_tokens(counts, size, 10, special=[0, 1, 2])
    assert str(raised.value) == f"--draft-vocab-size={size}: {problem}"


def test_special_tokens_are_read_from_the_checkpoint(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    # Some of the zoo's config names, too.
    assert special_tokens(Path(TARGET)) >= set(
        AutoTokenizer.from_pretrained(TARGET).all_special_ids
    )
    assert special_tokens(tmp_path) == set()
    contents = {
        "config.json": {"bos_token_id": None, "text_config": {"eos_token_id": [7, 8]}},
        "generation_config.json": {"eos_token_id": 9, "pad_token_id": True},
        "tokenizer.json": {
            "added_tokens": [{"id": 3, "special": True}, {"id": 4, "special": False}]
        },
        "tokenizer_config.json": {"added_tokens_decoder": {"5": {"special": True}, "6": {}}},
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert special_tokens(tmp_path) == {3, 5, 7, 8, 9}
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json': cannot be read"):
        special_tokens(tmp_path)
