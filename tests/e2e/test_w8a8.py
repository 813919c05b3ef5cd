"""``--quantization ascend``: ModelSlim's checkpoints on a CPU, with and without speculation."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from examples.zoo.quantized import DYNAMIC, STATIC, perplexity
from examples.zoo.training import experts, modelslim
from tests.docs.person import small, succeed
from tests.e2e.drafts import check_drafts, watch
from tests.engines import assert_same, token_ids
from tests.marks import requires_mla
from tests.zoo import EVERY, SPECS, TARGET, W8A8, ZOO, folder_of
from vllm_ascend_spec.errors import CheckpointError
from vllm_ascend_spec.metrics.acceptance import AcceptanceCounts
from vllm_ascend_spec.quantization.description import NAME

# Every prompt is asked in many of these tests, so many run at once.
WIDE = {"max_num_seqs": 32}
ASCEND = {"quantization": "ascend", **WIDE}
# From a quantized target's text. From its hidden states eagle and eagle3 draft above, asked more.
BY_DAY = ("ngram",)
METHODS = [
    pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly)
    for name in EVERY
    if name not in ("mtp", "custom_class", "suffix")
]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of quantized targets, by type."""
    folder = tmp_path_factory.mktemp("dynamic")
    modelslim.quantize_dynamic(Path(TARGET), folder)
    return {STATIC: W8A8, DYNAMIC: str(folder)}


InFloat = Callable[..., AcceptanceCounts]


@pytest.fixture(scope="module")
def in_float(make_engine: Any, generate: Any, prompts: list[str]) -> InFloat:
    """Return what tells what drafts are worth where nothing is quantized, by spec and target."""
    known: dict[str, AcceptanceCounts] = {}

    def accepted(spec: dict[str, Any], **target: Any) -> AcceptanceCounts:
        key = repr((spec, target))
        if key not in known:
            llm = make_engine(spec, **target, **WIDE)
            with watch(llm) as seen:
                generate(llm, prompts)
            known[key] = seen.acceptance
        return known[key]

    return accepted


@pytest.mark.parametrize("kind", [STATIC, DYNAMIC])
def test_texts_are_as_likely_as_in_float(
    kind: str, folders: dict[str, str], make_engine: Any, prompts: list[str]
) -> None:
    exact = perplexity(make_engine(), prompts)
    quantized = perplexity(make_engine(model=folders[kind], **ASCEND), prompts)
    assert quantized == pytest.approx(exact, rel=0.02)
    assert quantized != exact


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("eagle", STATIC),
        ("eagle", DYNAMIC),
        ("eagle3", STATIC),
        pytest.param("eagle3", DYNAMIC, marks=pytest.mark.nightly),
    ],
)
def test_speculation_changes_no_answer_and_drafts_are_worth_as_much(
    method: str,
    kind: str,
    folders: dict[str, str],
    make_engine: Any,
    expect: Any,
    generate: Any,
    prompts: list[str],
    in_float: InFloat,
) -> None:
    target, spec = {"model": folders[kind], **ASCEND}, SPECS[method]
    expected = token_ids(expect(prompts, target))
    with watch(make_engine(spec, **target)) as seen:
        answers = token_ids(generate(make_engine(spec, **target), prompts))
    assert_same(answers, expected)
    check_drafts(seen, 3)
    assert seen.acceptance.rate == pytest.approx(in_float(spec).rate, rel=0.03)


def test_a_described_folder_needs_no_option(make_engine: Any) -> None:
    config = make_engine(model=W8A8).llm_engine.vllm_config
    assert config.model_config.quantization == "ascend"
    assert make_engine().llm_engine.vllm_config.model_config.quantization is None


@pytest.mark.parametrize("method", METHODS)
def test_methods(
    method: str, make_engine: Any, expect: Any, generate: Any, prompts: list[str]
) -> None:
    target = {"model": W8A8, **ASCEND}
    expected = token_ids(expect(prompts[:16], target))
    with watch(make_engine(EVERY[method], **target)) as seen:
        answers = token_ids(generate(make_engine(EVERY[method], **target), prompts[:16]))
    assert_same(answers, expected)
    assert seen.acceptance.num_accepted_tokens > 0


@pytest.mark.nightly  # by day floats are compiled, in test_greedy_equality.py, and these run eager
@pytest.mark.parametrize("kind", [STATIC, DYNAMIC])
def test_compiled(
    kind: str, folders: dict[str, str], make_engine: Any, generate: Any, prompts: list[str]
) -> None:
    target = {"model": folders[kind], **ASCEND}
    plain, speculating = (
        make_engine(spec, enforce_eager=False, **target) for spec in (None, SPECS["eagle"])
    )
    expected = token_ids(generate(plain, prompts[:8]))
    assert_same(token_ids(generate(speculating, prompts[:8])), expected)


@pytest.mark.usefixtures("copied_workers")
def test_over_two_devices(
    make_engine: Any,
    expect: Any,
    generate: Any,
    prompts: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    target = {"model": W8A8, **ASCEND}
    expected = token_ids(expect(prompts[:8], target, max_tokens=32))
    split = make_engine(SPECS["eagle"], tensor_parallel_size=2, **target)
    answers = token_ids(generate(split, prompts[:8], max_tokens=32))
    # Sums are added in another order.
    same = sum(a == b for a, b in zip(answers, expected, strict=True))
    assert same >= 6


# vLLM 0.23 calls a layer of EAGLE-3 by another name. The layers of a draft model are a target's.
@pytest.mark.parametrize(
    "method",
    [
        pytest.param("draft_model", marks=pytest.mark.nightly),
        "eagle",
        pytest.param("eagle3", marks=pytest.mark.core),
    ],
)
def test_a_quantized_draft(
    method: str,
    make_engine: Any,
    expect: Any,
    generate: Any,
    prompts: list[str],
    in_float: InFloat,
    tmp_path: Path,
) -> None:
    modelslim.quantize_dynamic(Path(SPECS[method]["model"]), tmp_path)
    spec = {**SPECS[method], "model": str(tmp_path), "quantization": "ascend"}
    expected = token_ids(expect(prompts))
    llm = make_engine(spec, **WIDE)
    with watch(llm) as seen:
        assert_same(token_ids(generate(llm, prompts)), expected)
    accepted = in_float(SPECS[method])
    assert seen.acceptance.rate == pytest.approx(accepted.rate, rel=0.03)
    # They are other drafts, so the layers were not left in float.
    assert seen.acceptance != accepted


# By day test_quantized_experts runs DeepSeek's.
@pytest.mark.parametrize(
    "model",
    ["target-mimo", pytest.param("target-deepseek", marks=[requires_mla, pytest.mark.nightly])],
)
def test_heads_of_a_quantized_checkpoint(
    model: str,
    make_engine: Any,
    generate: Any,
    prompts: list[str],
    in_float: InFloat,
    tmp_path: Path,
) -> None:
    """Layers for multi-token prediction are in their target's checkpoint, quantized as it is."""
    modelslim.quantize_dynamic(folder_of(model), tmp_path)
    target = {"model": str(tmp_path), **ASCEND}
    spec = {"method": "mtp", "num_speculative_tokens": 3}
    expected = token_ids(generate(make_engine(**target), prompts))
    with watch(make_engine(spec, **target)) as seen:
        assert_same(token_ids(generate(make_engine(spec, **target), prompts)), expected)
    check_drafts(seen, 3)
    accepted = in_float(spec, model=str(folder_of(model)))
    assert seen.acceptance.rate == pytest.approx(accepted.rate, rel=0.03)


def test_the_zoo_is_what_its_script_writes(tmp_path: Path) -> None:
    """Static ranges are of this Python's library; these need no texts."""
    experts.add_experts(ZOO / "target-deepseek", tmp_path / "float")
    modelslim.quantize_dynamic(tmp_path / "float", tmp_path / "made")
    made, kept = tmp_path / "made", ZOO / "target-deepseek-w8a8"
    assert {path.name for path in made.iterdir()} == {path.name for path in kept.iterdir()}
    for name in ("config.json", NAME):
        assert (made / name).read_text() == (kept / name).read_text()
    found, expected = (load_file(folder / modelslim.WEIGHTS) for folder in (made, kept))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


@requires_mla
def test_quantized_experts(tmp_path: Path) -> None:
    printed = succeed("python", "-m", "tests.e2e.quantized_experts", str(tmp_path), **small())
    plain, speculating = json.loads(printed.splitlines()[-1])
    assert_same(speculating["tokens"], plain["tokens"])
    assert speculating["accepted"] > 0


def test_scales_of_a_float16_checkpoint(
    make_engine: Any, prompts: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "half"
    modelslim.quantize_static(Path(TARGET), folder, prompts[:4], torch.float16)
    found = perplexity(make_engine(model=str(folder), **ASCEND), prompts[:16])
    assert found == pytest.approx(perplexity(make_engine(), prompts[:16]), rel=0.03)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (None, None, f"has no {NAME}"),
        ("model.layers.0.self_attn.q_proj.weight", "W4A8", "q_proj.weight is 'W4A8'; valid: 'FLOA"),
        ("kv_cache_type", "C8", "kv_cache_type is 'C8', which only vllm-ascend has"),
        ("model.layers.2.self_attn.k_proj.weight", "FLOAT", "k_proj.weight is int8, and FLOAT"),
    ],
)
def test_a_wrong_description_is_named(
    key: str | None, value: Any, message: str, make_engine: Any, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(W8A8, tmp_path / "wrong"))
    if key is None:
        (folder / NAME).unlink()
    else:
        described = json.loads((folder / NAME).read_text())
        (folder / NAME).write_text(json.dumps({**described, key: value}))
    with pytest.raises(CheckpointError) as raised:
        make_engine(model=str(folder), **ASCEND)
    assert message in str(raised.value)
