"""A target that reads images (Qwen2.5-VL): answers are those of no speculation, and transformers'.

Its positions are M-RoPE's. An image takes fewer positions than tokens, so what a draft writes to
the KV cache behind one has to go by places.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.e2e.drafts import check_drafts, check_every_step_drafts, count, watch
from tests.engines import Generate, assert_same, token_ids
from tests.marks import requires_torchvision
from tests.pictures import (
    DRAFT,
    HEAD,
    MEDIA,
    NGRAM,
    QWEN25_VL,
    prompt_of,
    unseen_pictures,
    with_pictures,
)
from tests.zoo import ZOO

pytestmark = requires_torchvision
SPECS: dict[str, dict[str, Any]] = {"eagle3": HEAD, "draft_model": DRAFT, "ngram": NGRAM}
WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "stock loop": {"additional_config": {"ascend_spec": {"draft_loop": "stock"}}},
    # Most images are in two pieces, beside requests that decode.
    "chunked": {"max_num_batched_tokens": 40, "max_num_seqs": 4},
    "no prefix caching": {"enable_prefix_caching": False},
    "compiled": {"enforce_eager": False},
    "sync": {"async_scheduling": False},
}
# Images are in pieces by day on the simulated NPU: tests/ascend/test_multimodal.py.
BY_DAY = {
    ("eagle3", "default"),
    ("draft_model", "default"),
    ("ngram", "default"),
}
CELLS = [
    pytest.param(method, way, marks=() if (method, way) in BY_DAY else pytest.mark.nightly)
    for method in SPECS
    for way in WAYS
    if (method, way) != ("ngram", "stock loop")
]
NUM_PROMPTS = 12
# Float32, added up in another order.
ROUNDING = 1e-3


# Drafts of a text model: they have one position for each token, and know nothing of images.
OF_TEXT: dict[str, dict[str, Any]] = {
    "eagle": {"method": "eagle"},
    "eagle3": {"method": "eagle3"},
    "dflash": {"method": "dflash"},
    "peagle": {"method": "eagle3", "parallel_drafting": True},
    "pard": {"method": "draft_model", "parallel_drafting": True},
}
LAYERS = {"eagle_config": "eagle_aux_hidden_state_layer_ids", "dflash_config": "target_layer_ids"}


@pytest.fixture(scope="module")
def engine_model() -> str:
    return QWEN25_VL


@pytest.fixture(scope="module")
def requests(prompts: list[str]) -> list[Any]:
    """Texts, and texts with one or two pictures in them."""
    return with_pictures(prompts[:NUM_PROMPTS])


@pytest.fixture(scope="module")
def unspeculated(make_engine: Any, generate: Generate, requests: list[Any]) -> list[Any]:
    """What an engine without speculation answers."""
    return generate(make_engine(**MEDIA), requests, logprobs=0)


@pytest.mark.parametrize(("method", "way"), CELLS)
def test_answers_are_those_of_no_speculation(
    method: str, way: str, make_engine: Any, generate: Generate, requests: Any, unspeculated: Any
) -> None:
    llm, expected = make_engine(SPECS[method], **MEDIA, **WAYS[way]), token_ids(unspeculated)
    with watch(llm) as seen:
        answers = token_ids(generate(llm, requests))
    assert_same(answers, expected)
    check_drafts(seen, 3, 1.05)
    if method != "ngram":
        check_every_step_drafts(seen, 3, answers)
    assert_same(token_ids(generate(llm, requests[:4], 1)), expected[:4])


@pytest.mark.nightly
@pytest.mark.parametrize("name", OF_TEXT)
def test_drafts_of_a_text_model(
    name: str,
    make_engine: Any,
    generate: Generate,
    requests: list[Any],
    unspeculated: list[Any],
    tmp_path: Path,
) -> None:
    """They were trained for another target, which is deeper."""
    folder = shutil.copytree(ZOO / name, tmp_path / name)
    config = json.loads((folder / "config.json").read_text())
    for section, layers in LAYERS.items():
        if section in config:
            config[section][layers] = [0, 1, 2] if section == "dflash_config" else [1, 2, 3]
    (folder / "config.json").write_text(json.dumps(config))
    spec = {**OF_TEXT[name], "model": str(folder), "num_speculative_tokens": 3}
    llm = make_engine(spec, **MEDIA)
    with watch(llm) as seen:
        answers = token_ids(generate(llm, requests))
    assert_same(answers, token_ids(unspeculated))
    assert seen.acceptance.num_accepted_tokens > 0


def test_a_picture_is_found_again(
    make_engine: Any, generate: Generate, requests: list[Any], unspeculated: list[Any]
) -> None:
    """In the prefix cache; another one in its place is not."""
    text, pictures = "x = 1\n" * 100, unseen_pictures()
    first, second = (prompt_of(text, picture) for picture in pictures[:2])
    alone = token_ids(generate(make_engine(**MEDIA), [first, second], 1))
    # Made last: what is counted is the process's.
    llm = make_engine(HEAD, **MEDIA, seed=1)
    generate(llm, [first])
    before = count(llm, "vllm:prefix_cache_hits")
    assert_same(token_ids(generate(llm, [first, second], 1)), alone)
    # All blocks of the first; of the second those before the picture.
    assert count(llm, "vllm:prefix_cache_hits") >= before + 128
    assert alone[0] != alone[1]


def test_a_picture_is_read(make_engine: Any, generate: Generate) -> None:
    """The target has never seen these: it names both colours and the shape of most, of 120."""
    pictures = unseen_pictures()
    llm = make_engine(HEAD, **MEDIA)
    prompts = [prompt_of("import canvas\n", picture) for picture in pictures]
    answers = generate(llm, prompts, max_tokens=24)
    right = [a.text.startswith(p.line.strip()) for a, p in zip(answers, pictures, strict=True)]
    assert sum(right) > 0.6 * len(right)


@torch.no_grad()
def test_logprobs_are_those_of_transformers(requests: list[Any], unspeculated: list[Any]) -> None:
    from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration

    target = Qwen2_5_VLForConditionalGeneration.from_pretrained(QWEN25_VL, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(QWEN25_VL)
    for request, output in list(zip(requests, unspeculated, strict=True))[:6]:
        if isinstance(request, str):
            request = {"prompt": request, "multi_modal_data": {"image": None}}  # noqa: PLW2901
        images = request["multi_modal_data"]["image"]
        inputs = processor(text=request["prompt"], images=images, return_tensors="pt")
        logprobs = target(**inputs).logits[0, -1].log_softmax(-1)
        token = output.token_ids[0]
        assert abs(output.logprobs[0][token].logprob - logprobs[token]) < ROUNDING


def test_drafts_behind_pictures_are_worth_more_than_vllms(
    make_engine: Any, generate: Generate, prompts: list[str]
) -> None:
    """vLLM writes the keys of draft steps 2 to K behind a picture over those of other tokens."""
    pictures = unseen_pictures()
    requests = [
        prompt_of(text, *pictures[place : place + 2]) for place, text in enumerate(prompts[:16])
    ]
    accepted = {}
    for way in ("default", "stock loop"):
        llm = make_engine(HEAD, **MEDIA, **WAYS[way])
        with watch(llm) as seen:
            generate(llm, requests)
        accepted[way] = seen.acceptance.tokens_per_step
    assert accepted["default"] > accepted["stock loop"], accepted
