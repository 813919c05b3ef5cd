"""Random cases at the ends of every range: the C++ backend gives the reference's results."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ops import batches
from tests.ops.batches import RULES, Arguments, float64, int32
from tests.ops.cpu.marks import requires_library
from tests.ops.parity import assert_right, judge, judge_greedy
from vllm_ascend_spec.ops import verify_greedy, verify_sample

LARGEST = torch.finfo(torch.float32).max
KINDS = ("largest", "denormal", "tied", "wide", "any magnitude", "steps")
VOCABULARIES = (1, 2, 3, 5, 130, 1025, 2048, 2049, 5000)
# What separates neighbouring blocks of 2,048 tokens, in the kind "steps".
STEPS = (-90.0, -50.0, -20.0, 20.0, 50.0, 90.0)
TEMPERATURES = (0.0, 1e-38, 1e-30, 1e-10, 1e-3, 0.8, 3.0, 100.0, 1e10, 1e30)
TOP_KS = (-(2**31), 0, 1, 2, 1024, 1025, 5005, 2**31 - 1)
TOP_PS = (1e-45, 1e-38, 1e-10, 0.3, 0.9, 0.999999, 1 - 2**-24, 1.0)
MIN_PS = (0.0, 1e-45, 1e-38, 1e-10, 0.3, 1 - 2**-24, 1.0)
UNIFORMS = st.sampled_from((0.0, 1 - 2**-53)) | st.floats(0, 1, exclude_max=True)

pytestmark = requires_library


def make_logits(kind: str, num_rows: int, vocab: int, seed: int) -> torch.Tensor:
    """Return logits of one of the KINDS, float32 [num_rows, vocab], all finite."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(num_rows, vocab, generator=generator)
    other = torch.rand(num_rows, vocab, generator=generator)
    if kind == "largest":
        return LARGEST * noise.sign() * (other > 0.3)
    if kind == "denormal":
        return noise * 1e-40
    if kind == "tied":
        return torch.where(noise > -1, 1.0, noise)
    if kind == "wide":
        return noise * 100
    if kind == "any magnitude":
        return noise.sign() * 10 ** (76 * other - 38)
    return noise + STEPS[seed % len(STEPS)] * (torch.arange(vocab) // 2048)


@st.composite
def extreme_cases(draw: Any) -> Arguments:
    lengths = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    vocab, seed = draw(st.sampled_from(VOCABULARIES)), draw(batches.seeds)
    num_reqs, num_drafts = len(lengths), sum(lengths)

    def each(values: tuple[float, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([draw(st.sampled_from(values)) for _ in lengths], dtype=dtype)

    logits = make_logits(draw(st.sampled_from(KINDS)), num_reqs + num_drafts, vocab, seed)
    own_rows = torch.arange(num_drafts) + torch.repeat_interleave(torch.tensor(lengths))
    generator = torch.Generator().manual_seed(seed + 1)
    drafts = torch.randint(-1, vocab, (num_drafts,), generator=generator)
    case: Arguments = {
        "logits": logits,
        "draft_token_ids": (logits[own_rows].argmax(-1) if draw(st.booleans()) else drafts).int(),
        "cu_num_draft_tokens": int32(torch.tensor(lengths).cumsum(0).tolist()),
        "max_draft_len": max(lengths),
        "temperature": each(TEMPERATURES, torch.float32),
        "accept_uniform": float64([draw(UNIFORMS) for _ in range(num_drafts)]),
        "sample_uniform": float64([draw(UNIFORMS) for _ in lengths]),
        "rule": draw(st.sampled_from(RULES)),
    }
    for name, values, dtype in (
        ("top_k", TOP_KS, torch.int32),
        ("top_p", TOP_PS, torch.float32),
        ("min_p", MIN_PS, torch.float32),
    ):
        if draw(st.booleans()):
            case[name] = each(values, dtype)
    if draw(st.booleans()):
        noise = torch.randn(num_drafts, vocab, generator=generator)
        case["draft_probs"] = (noise * draw(st.sampled_from((0.0, 1.0, 30.0)))).softmax(-1)
    return case


@settings(max_examples=600)
@given(extreme_cases())
def test_extreme_cases_equal_the_reference(case: Arguments) -> None:
    assert_right([judge(case, verify_sample(**case, backend="cpu"))], most_ties=1)


@settings(max_examples=150)
@given(extreme_cases(), st.sampled_from((torch.float32, torch.bfloat16, torch.float16)))
def test_extreme_greedy_cases_equal_the_reference(case: Arguments, dtype: torch.dtype) -> None:
    names = ("draft_token_ids", "cu_num_draft_tokens", "max_draft_len")
    arguments = {"logits": case["logits"].to(dtype), **{name: case[name] for name in names}}
    result = verify_greedy(**arguments, backend="cpu")
    assert_right([judge_greedy(arguments, result)], most_ties=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_kinds_are_what_they_say(kind: str) -> None:
    logits = make_logits(kind, 3, 5000, 3)
    assert bool(logits.isfinite().all())
    assert {
        "largest": bool((logits.abs() == LARGEST).any()),
        "denormal": 0 < float(logits.abs().max()) < torch.finfo(torch.float32).tiny,
        "tied": int((logits == logits.max()).sum(-1).min()) > 1024,
        "wide": float(logits.max() - logits.min()) > 300,
        "any magnitude": float(logits.abs().log10().std()) > 10,
        "steps": float(logits[:, 2048:4096].mean() - logits[:, :2048].mean()) > 10,
    }[kind]
