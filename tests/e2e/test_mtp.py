"""Layers for multi-token prediction: DeepSeek's attention, and models with several such layers.

MiMo is in the table of ``tests/zoo.py``, and so in the tests of every method.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from examples.zoo.training import mla
from tests.e2e.drafts import check_drafts, check_every_step_drafts, watch
from tests.engines import Generate, MakeEngine, assert_same, token_ids
from tests.marks import requires_mla
from tests.patches.cases import taking_out
from tests.zoo import folder_of
from vllm_ascend_spec.patches.upstream import cpu_rotary_layout

DEEPSEEK, MIMO = folder_of("target-deepseek"), folder_of("target-mimo")
MODELS = {"DeepSeek": DEEPSEEK, "MiMo": MIMO}
NUM_PROMPTS = 32
# Float32, added up in another order.
ROUNDING = 1e-3


def spec(num_drafts: int, **options: Any) -> dict[str, Any]:
    return {"method": "mtp", "num_speculative_tokens": num_drafts, **options}


@pytest.fixture(scope="module")
def expected(expect: Any, prompts: list[str]) -> list[list[int]]:
    """DeepSeek's answers without speculation."""
    return token_ids(expect(prompts[:NUM_PROMPTS], {"model": str(DEEPSEEK)}))


@requires_mla
@pytest.mark.parametrize(
    ("num_drafts", "batch"),
    [(3, 1), (3, 8)]
    # By day EAGLE's loop, which is the same, makes five drafts: test_greedy_equality.py.
    + [pytest.param(*one, marks=pytest.mark.nightly) for one in ((1, 8), (1, 1), (5, 8), (5, 1))],
)
def test_deepseek_answers_as_without_speculation(
    num_drafts: int,
    batch: int,
    make_engine: MakeEngine,
    generate: Generate,
    prompts: list[str],
    expected: list[list[int]],
) -> None:
    llm = make_engine(spec(num_drafts), model=str(DEEPSEEK))
    count = NUM_PROMPTS if batch > 1 else 8
    with watch(llm) as seen:
        answers = token_ids(generate(llm, prompts[:count], batch))
    assert_same(answers, expected[:count])
    check_drafts(seen, num_drafts, 1.5)
    check_every_step_drafts(seen, num_drafts, answers)


@requires_mla
@pytest.mark.parametrize("options", [{"draft_loop": "stock"}])
def test_deepseek_in_stock_draft_loop(
    options: dict[str, Any],
    make_engine: MakeEngine,
    generate: Generate,
    prompts: list[str],
    expected: list[list[int]],
) -> None:
    llm = make_engine(spec(3), model=str(DEEPSEEK), additional_config={"ascend_spec": options})
    with watch(llm) as seen:
        assert_same(token_ids(generate(llm, prompts[:16])), expected[:16])
    check_drafts(seen, 3, 1.5)


# What three of DeepSeek's are worth is in test_golden_acceptance.py by day.
@pytest.mark.parametrize("model", [pytest.param("DeepSeek", marks=pytest.mark.nightly), "MiMo"])
def test_one_draft_is_worth_what_it_should(
    model: str, make_engine: MakeEngine, generate: Generate, prompts: list[str]
) -> None:
    llm = make_engine(spec(1), model=str(MODELS[model]))
    with watch(llm) as seen:
        generate(llm, prompts)
    assert seen.acceptance.tokens_per_step is not None
    assert seen.acceptance.tokens_per_step >= 1.6, seen.acceptance


@torch.no_grad()
def plain_logprobs(tokens: list[int]) -> torch.Tensor:
    """Return the log-probabilities behind each token by plain PyTorch, [length, vocab_size]."""
    model = mla.load(DEEPSEEK)
    return model.logits(model(torch.tensor([tokens])))[0].log_softmax(-1)


def largest_error(llm: Any, prompts: list[str]) -> float:
    """Return by how much an engine's log-probabilities are off: of prompts, and of what it writes.

    Rows of a prompt are read together, and so are a token and the drafts behind it.
    """
    from vllm import SamplingParams

    asked = SamplingParams(
        temperature=0, max_tokens=24, logprobs=0, prompt_logprobs=0, ignore_eos=True
    )
    errors = []
    for output in llm.generate(prompts, asked, use_tqdm=False):
        written = output.outputs[0]
        tokens = [*output.prompt_token_ids, *written.token_ids]
        found = [*output.prompt_logprobs[1:], *written.logprobs]
        expected = plain_logprobs(tokens)
        errors += [
            abs(entry[token].logprob - expected[place, token].item())
            for place, (token, entry) in enumerate(zip(tokens[1:], found, strict=True))
        ]
    return max(errors)


@requires_mla
@pytest.mark.parametrize("num_drafts", [None, 3])
def test_logprobs_are_those_of_plain_pytorch(
    num_drafts: int | None, make_engine: MakeEngine, prompts: list[str]
) -> None:
    llm = make_engine(spec(num_drafts) if num_drafts else None, model=str(DEEPSEEK))
    assert largest_error(llm, prompts[:4]) < ROUNDING


@requires_mla
def test_without_the_patch_of_rotary_positions_they_are_not(
    make_engine: MakeEngine, prompts: list[str]
) -> None:
    """Negative control."""
    from vllm.model_executor.layers import rotary_embedding

    with taking_out() as take_out, pytest.MonkeyPatch.context() as patch:
        take_out(cpu_rotary_layout)
        patch.setattr(cpu_rotary_layout, "apply", lambda: None)
        # vLLM keeps the tables of other engines, with the functions that turn by them.
        patch.setattr(rotary_embedding, "_ROPE_DICT", {})
        llm = make_engine(model=str(DEEPSEEK), max_model_len=500)
        assert largest_error(llm, prompts[:2]) > 100 * ROUNDING


def with_two_layers(source: Path, folder: Path) -> Path:
    """Write a model with a second MTP layer of noise, which nothing may read."""
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text())
    first = f"model.layers.{config['num_hidden_layers']}."
    second = f"model.layers.{config['num_hidden_layers'] + 1}."
    if source == MIMO:
        first, second = "model.mtp_layers.0.", "model.mtp_layers.1."
    state = load_file(folder / "model.safetensors")
    for name in [name for name in state if name.startswith(first)]:
        state[name.replace(first, second)] = torch.randn_like(state[name])
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    changes = {"num_nextn_predict_layers": 2, "first_k_dense_replace": 9}
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


@pytest.mark.parametrize("model", MODELS)
def test_three_drafts_of_a_model_with_two_layers(
    model: str, make_engine: MakeEngine, generate: Generate, prompts: list[str], tmp_path: Path
) -> None:
    folder = with_two_layers(MODELS[model], tmp_path / "model")
    counted, answers = [], []
    for path in (MODELS[model], folder):
        llm = make_engine(spec(3), model=str(path))
        with watch(llm) as seen:
            answers.append(token_ids(generate(llm, prompts[:8], max_tokens=32)))
        counted.append(seen.acceptance)
    assert_same(*answers)
    assert counted[0] == counted[1]
