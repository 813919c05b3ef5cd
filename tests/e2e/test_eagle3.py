"""EAGLE-3 heads in every form: the drafts are the head's, and the answers the target's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm import LLM

from tests.e2e.drafts import check_drafts, watch
from tests.e2e.eagle3_reference import Reference
from tests.eagle3 import HEAD, VARIANTS, write_variant
from tests.engines import ENGINE, assert_same, token_ids
from tests.zoo import ZOO_SPECS, ZOO_TARGET
from vllm_ascend_spec.methods.loops.vllm.module_steps import ModuleSteps

SPEC = ZOO_SPECS["eagle3"]
NUM_DRAFTS = SPEC["num_speculative_tokens"]
# Forms with the zoo's names of tensors; the others differ in the layout alone.
REFERRED = ["as it is", *(name for name in VARIANTS if name != "speculators")]
# The zoo's head was not trained to be run so: its drafts are worse, and the answers are the same.
UNTRAINED = ("EAGLE-3.1", "normed residual")
# The two best tokens of a draft may be this close, and rounding chooses.
TIE = 1e-3
Seen = list[tuple[int, list[int]]]


@pytest.fixture(scope="module")
def engine_model() -> str:
    """The zoo's target: its head shows what a form that it was not trained for costs."""
    return ZOO_TARGET


@pytest.fixture(scope="module")
def expected(expect: Any, prompts: list[str]) -> list[list[int]]:
    return token_ids(expect(prompts[:16]))


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return ``folder_of(name)``, where a form of the head is."""
    known: dict[str, Path] = {"as it is": HEAD}

    def folder(name: str) -> Path:
        if name not in known:
            known[name] = write_variant(name, tmp_path_factory.mktemp("heads") / "head")
        return known[name]

    return folder


def drafter_of(llm: Any) -> Any:
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner.drafter


@contextmanager
def noted(drafter: Any, patch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """Note, for each step of one request, how many tokens it had and what was drafted."""
    seen: Seen = []
    join, draft = drafter.join, drafter.steps.draft

    def positions_of(k: int, first: Any, sampling: Any) -> torch.Tensor:
        if k:
            seen.append((int(first.positions[first.rows][0]) + 2, []))
        return draft(k, first, sampling)

    def drafts_of(picked: Any) -> torch.Tensor:
        drafts = join(picked)
        seen[-1][1].extend(drafts[0].tolist())
        return drafts

    with patch.context() as here:
        here.setattr(drafter.steps, "draft", positions_of)
        here.setattr(drafter, "join", drafts_of)
        yield seen


def differing(seen: Seen, text: list[int], reference: Reference) -> int:
    """Count the drafts that are not those of the reference, ties aside."""
    wrong = 0
    for length, drafts in seen:
        for draft, best in zip(drafts, reference.drafts(text[:length], len(drafts)), strict=True):
            (argmax, most), (_, second) = best.items()
            if draft != argmax:
                wrong += most - second > TIE
                break  # what follows is drafted behind another token
    return wrong


@pytest.mark.parametrize("modules", [False, True], ids=["direct", "modules"])
@pytest.mark.parametrize("name", REFERRED)
def test_drafts_are_those_of_plain_pytorch(
    name: str,
    modules: bool,
    make_engine: Any,
    folder_of: Any,
    prompts: list[str],
    monkeypatch: Any,
    generate: Any,
) -> None:
    llm = make_engine({**SPEC, "model": str(folder_of(name))})
    drafter = drafter_of(llm)
    if modules:
        monkeypatch.setattr(drafter, "steps", ModuleSteps(drafter))
    with noted(drafter, monkeypatch) as seen:
        output = generate(llm, prompts[5:6], max_tokens=24)[0]
    text = llm.get_tokenizer().encode(prompts[5]) + list(output.token_ids)
    assert len(seen) >= 4
    reference = Reference(folder_of(name))
    assert differing([(n, d) for n, d in seen if n <= len(text)], text, reference) == 0


def test_a_wrong_feedback_would_be_noticed(
    make_engine: Any, folder_of: Any, prompts: list[str], monkeypatch: Any, generate: Any
) -> None:
    """Negative control: the reference feeds back what is behind the last norm, the engine not."""
    llm = make_engine({**SPEC, "model": str(HEAD)})
    with noted(drafter_of(llm), monkeypatch) as seen:
        output = generate(llm, prompts[5:6], max_tokens=24)[0]
    text = llm.get_tokenizer().encode(prompts[5]) + list(output.token_ids)
    reference = Reference(HEAD)
    reference.config["norm_output"] = True
    assert differing([(n, d) for n, d in seen if n <= len(text)], text, reference) > 0


@pytest.mark.parametrize("name", VARIANTS)
def test_answers_are_the_targets(
    name: str, make_engine: Any, generate: Any, folder_of: Any, prompts: list[str], expected: Any
) -> None:
    llm = make_engine({**SPEC, "model": str(folder_of(name))})
    with watch(llm) as seen:
        answers = token_ids(generate(llm, prompts[:16]))
    assert_same(answers, expected)
    if name in UNTRAINED:
        # Trained, it has 0.79.
        assert seen.acceptance.rate is not None
        assert 0 < seen.acceptance.rate < 0.65
    else:
        check_drafts(seen, NUM_DRAFTS)


def test_speculators_layout_drafts_the_same(
    make_engine: Any, generate: Any, folder_of: Any, prompts: list[str]
) -> None:
    counts = []
    for name in ("as it is", "speculators"):
        llm = make_engine({**SPEC, "model": str(folder_of(name))})
        with watch(llm) as seen:
            generate(llm, prompts[:8])
        counts.append(seen.acceptance)
    assert counts[0] == counts[1]


def test_head_of_the_speculators_library_as_the_model(
    generate: Any, folder_of: Any, prompts: list[str], expected: Any
) -> None:
    """The folder says target, method and number of drafts."""
    given = {**ENGINE, "model": str(folder_of("speculators"))}
    llm = LLM(**given, speculative_config={"draft_sample_method": "probabilistic"})
    try:
        with watch(llm) as seen:
            assert_same(token_ids(generate(llm, prompts[:8])), expected[:8])
        check_drafts(seen, NUM_DRAFTS)
    finally:
        llm.llm_engine.engine_core.shutdown()
