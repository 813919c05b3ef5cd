"""Medusa's heads against the formula of the paper, in each format of checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from tests.config.checkpoints import HIDDEN, VOCAB, WEIGHTS, edit_config
from tests.config.heads import faster_decoding, truncated, write_medusa
from tests.methods.heads import make_drafter, make_heads_step, randomize
from tests.methods.sampling import make_noise, make_sampling
from vllm_ascend_spec.methods.loops.sampling import DraftSampler


@pytest.fixture
def states() -> torch.Tensor:
    return torch.randn(3, HIDDEN, generator=torch.Generator().manual_seed(2))


SAMPLED = [[5], [6], [7]]


def residual(
    x: torch.Tensor,  # [num_reqs, HIDDEN]
    weight: torch.Tensor,  # [HIDDEN, HIDDEN]
    bias: torch.Tensor | float = 0.0,
) -> torch.Tensor:
    return x + F.silu(x @ weight.T + bias)


@pytest.mark.parametrize("shared", [True, False])
def test_vllms_format(shared: bool, tmp_path: Path, states: torch.Tensor) -> None:
    folder = write_medusa(tmp_path / "draft", original_lm_head=shared)
    weights = randomize(folder)
    expected = []
    for head in range(2):
        x = states
        for layer in range(2):
            x = residual(x, weights[f"blocks.{head}.layers.{layer}.weight"])
        output = weights["lm_head.weight" if shared else f"lm_heads.{head}.weight"]
        expected.append((x @ output.T).argmax(-1))
    drafts = make_drafter("medusa", folder).draft(make_heads_step(SAMPLED, states))
    assert drafts.T.tolist() == torch.stack(expected).tolist()


def test_faster_decodings_format_keeps_its_biases(tmp_path: Path, states: torch.Tensor) -> None:
    folder = faster_decoding(tmp_path / "draft")
    weights = randomize(folder)
    expected, without = [], []
    for head in range(2):
        weight, bias = (weights[f"{head}.0.linear.{kind}"] for kind in ("weight", "bias"))
        output = weights[f"{head}.1.weight"].T
        expected.append((residual(states, weight, bias) @ output).argmax(-1).tolist())
        without.append((residual(states, weight) @ output).argmax(-1).tolist())
    drafts = make_drafter("medusa", folder).draft(make_heads_step(SAMPLED, states))
    assert drafts.T.tolist() == expected
    assert expected != without


@pytest.mark.parametrize("rows", [4, VOCAB])
@pytest.mark.parametrize("shared", [True, False])
def test_some_tokens_only(rows: int, shared: bool, tmp_path: Path, states: torch.Tensor) -> None:
    """A whole output layer has rows of tokens that are never drafted; a short one has not."""
    tokens = [3, 1, 15, 0]
    folder = truncated(tmp_path / "draft", tokens, rows, original_lm_head=shared, num_heads=1)
    weights = randomize(folder)
    x = states
    for layer in range(2):
        x = residual(x, weights[f"blocks.0.layers.{layer}.weight"])
    output = weights["lm_head.weight" if shared else "lm_heads.0.weight"]
    logits = x @ (output[tokens] if rows == VOCAB else output).T
    expected = torch.tensor(tokens)[logits.argmax(-1)]
    step = make_heads_step(SAMPLED, states, num_drafts=1)
    drafts = make_drafter("medusa", folder, num_drafts=1).draft(step)
    assert drafts[:, 0].tolist() == expected.tolist()

    drawing = make_drafter("medusa", folder, num_drafts=1, draft_sample_method="probabilistic")
    step = make_heads_step(SAMPLED, states, num_drafts=1, sampling=make_sampling([1.0] * 3))
    drafts = drawing.draft(step)
    probs = drawing.take_last_draft_probs()[:, 0]
    assert torch.allclose(probs[:, tokens], logits.softmax(-1), atol=1e-5)
    assert set(drafts.flatten().tolist()) <= set(tokens)

    # With seeds, too, they are sampled as tokens of the target's vocabulary.
    drawing.runner.noise_of_drafts = noise = make_noise([3, 4, 5], [9, 9, 9])
    whole = torch.full((3, VOCAB), float("-inf"))
    whole[:, tokens] = logits
    own = DraftSampler(make_sampling([1.0] * 3), noise)
    assert drawing.draft(step)[:, 0].tolist() == own.draw(whole)[0].tolist()


def test_scale_of_logits(tmp_path: Path, states: torch.Tensor) -> None:
    folder = write_medusa(tmp_path / "draft")
    randomize(folder)
    found = []
    for scale, temperature in ((0.5, 1.0), (1.0, 2.0)):
        edit_config(folder, logit_scale=scale)
        drafter = make_drafter("medusa", folder, draft_sample_method="probabilistic")
        sampling = make_sampling([temperature] * 3)
        drafter.draft(make_heads_step(SAMPLED, states, sampling=sampling))
        found.append(drafter.take_last_draft_probs())
    assert torch.allclose(*found)


def test_every_output_layer_of_one_for_all_is_the_same(tmp_path: Path) -> None:
    """A checkpoint may name one output layer once for each head."""
    folder = write_medusa(tmp_path / "draft", original_lm_head=False)
    edit_config(folder, original_lm_head=True)
    tensors = load_file(folder / WEIGHTS)
    make_drafter("medusa", folder)
    tensors["lm_heads.1.weight"] += 1
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    with pytest.raises(ValueError, match=r"lm_heads.1.weight and lm_heads.0.weight differ"):
        make_drafter("medusa", folder)
