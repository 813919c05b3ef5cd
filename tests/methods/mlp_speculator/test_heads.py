"""The stages of an MLP speculator against the formula of fms-extras."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.config.checkpoints import HIDDEN
from tests.config.heads import INNER, write_mlp
from tests.methods.heads import make_drafter, make_heads_step, randomize

LAST = [5, 6, 7]


def reference(
    weights: dict[str, torch.Tensor],
    states: torch.Tensor,  # [num_reqs, HIDDEN]
    *,
    scales: bool,
    tied: bool,
) -> list[list[int]]:
    """Return the drafts of each stage, in float64."""

    def of(part: str, stage: int, kind: str = "weight") -> torch.Tensor:
        owner = min(stage, 1 if part == "proj" else 0) if tied else stage
        return weights[f"speculator.{part}.{owner}.{kind}"].double()

    def norm(x: torch.Tensor) -> torch.Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()

    state, tokens, drafts = states.double(), torch.tensor(LAST), []
    if scales:
        state = norm(state) / 2**0.5
    kept = 0.5 ** (0.5 / 3)
    weight = math.sqrt((1 - kept**2) * (INNER / 2)) / kept
    for stage in range(3):
        state = state @ of("proj", stage).T + weight * of("emb", stage)[tokens]
        state = F.gelu(norm(state) * of("ln", stage) + of("ln", stage, "bias"))
        tokens = (state @ of("head", stage).T).argmax(-1)
        drafts.append(tokens.tolist())
    return drafts


@pytest.mark.parametrize("scales", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_formula(tied: bool, scales: bool, tmp_path: Path) -> None:
    folder = write_mlp(tmp_path / "draft", scale_input=scales)
    weights = randomize(folder)
    if tied:
        from safetensors.torch import save_file

        from tests.config.checkpoints import WEIGHTS, edit_config

        edit_config(folder, tie_weights=True)
        once = {k: v for k, v in weights.items() if ".0." in k or ".proj.1." in k}
        save_file(once, folder / WEIGHTS, {"format": "pt"})
    states = torch.randn(3, HIDDEN, generator=torch.Generator().manual_seed(4))
    drafter = make_drafter("mlp_speculator", folder, num_drafts=3)
    drafts = drafter.draft(make_heads_step([[t] for t in LAST], states, num_drafts=3))
    assert drafts.T.tolist() == reference(weights, states, scales=scales, tied=tied)


def test_a_draft_depends_on_the_token_before(tmp_path: Path) -> None:
    folder = write_mlp(tmp_path / "draft", scale_input=False)
    randomize(folder)
    drafter = make_drafter("mlp_speculator", folder)
    states = torch.full((8, HIDDEN), 1e-3)
    drafts = drafter.draft(make_heads_step([[t] for t in range(8)], states))
    assert len(set(map(tuple, drafts.tolist()))) > 1
