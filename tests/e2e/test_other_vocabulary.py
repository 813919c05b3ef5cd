"""A draft model whose tokenizer numbers the same tokens otherwise (``use_heterogeneous_vocab``).

It is the zoo's draft model with its ids turned round, so once they are translated its drafts have
to be those of the draft model itself.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.config.checkpoints import WEIGHTS
from tests.e2e.drafts import watch
from tests.engines import assert_same, token_ids
from tests.zoo import SPECS

TOKENIZER, EMBEDDING = "tokenizer.json", "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def turned_round(tmp_path_factory: Any) -> str:
    """The draft model with ids 1, 2, 3, … as the last, the last but one, …; 0 ends a text."""
    folder = Path(
        shutil.copytree(SPECS["draft_model"]["model"], tmp_path_factory.mktemp("d") / "d")
    )
    tokenizer = json.loads((folder / TOKENIZER).read_text())
    vocab = tokenizer["model"]["vocab"]
    count = len(vocab)
    tokenizer["model"]["vocab"] = {t: count - i if i else 0 for t, i in vocab.items()}
    (folder / TOKENIZER).write_text(json.dumps(tokenizer))
    weights = load_file(folder / WEIGHTS)
    weights[EMBEDDING][1:] = weights[EMBEDDING][1:].flip(0)
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    return str(folder)


def test_drafts_are_those_of_the_same_model_in_the_targets_vocabulary(
    turned_round: str, make_engine: Any, generate: Any, prompts: list[str], expect: Any
) -> None:
    other = {**SPECS["draft_model"], "model": turned_round, "use_heterogeneous_vocab": True}
    accepted = []
    for spec in (SPECS["draft_model"], other):
        llm = make_engine(spec)
        with watch(llm) as seen:
            assert_same(token_ids(generate(llm, prompts[:8])), token_ids(expect(prompts[:8])))
        accepted.append(seen.acceptance.accepted_per_position)
    assert accepted[0] == accepted[1]


def test_without_the_option_drafts_are_taken_for_other_tokens(
    turned_round: str, make_engine: Any, generate: Any, prompts: list[str]
) -> None:
    """Negative control."""
    llm = make_engine({**SPECS["draft_model"], "model": turned_round})
    with watch(llm) as seen:
        generate(llm, prompts[:2])
    assert seen.acceptance.num_accepted_tokens < 0.05 * seen.acceptance.num_draft_tokens
