"""Other targets with Gated DeltaNet layers than the zoo's: random ones, with experts.

vLLM makes its group of experts with the first engine of a process, so these have a file of their
own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.drafts import watch
from tests.e2e.recurrent import (
    MODELS,
    NEEDS_LAYERS,
    assert_logprobs_of_transformers,
    write_model,
)
from tests.e2e.scripted import Scripted
from tests.engines import Generate, assert_same, token_ids

pytestmark = NEEDS_LAYERS
MTP = {"method": "mtp", "num_speculative_tokens": 3}
SCRIPTED = {
    "method": "custom_class",
    "model": f"{Scripted.__module__}.Scripted",
    "num_speculative_tokens": 3,
}


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_transformers_and_of_no_speculation(
    name: str,
    make_engine: Any,
    generate: Generate,
    prompts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No draft but a scripted one is ever right."""
    model = write_model(name, tmp_path)
    plain = make_engine(model=model)
    outputs = generate(plain, prompts[:8], logprobs=0)
    expected = token_ids(outputs)
    encode = plain.get_tokenizer().encode
    texts = [encode(text) + answer for text, answer in zip(prompts, expected, strict=False)]
    assert_logprobs_of_transformers(model, outputs[:4], texts[:4])
    monkeypatch.setattr(Scripted, "texts", texts)
    for spec in (SCRIPTED, MTP):
        llm = make_engine(spec, model=model)
        with watch(llm) as seen:
            assert_same(token_ids(generate(llm, prompts[:8])), expected)
        assert seen.acceptance.num_drafts > 0
        assert (seen.acceptance.num_accepted_tokens > 0) == (spec is SCRIPTED)
