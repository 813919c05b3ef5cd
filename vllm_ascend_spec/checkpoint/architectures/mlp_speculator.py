"""MLP speculators, as ibm-fms saves them (``MLPSpeculatorPreTrainedModel``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ascend_spec.checkpoint import config_json
from vllm_ascend_spec.checkpoint.own_heads import require_same
from vllm_ascend_spec.checkpoint.safetensors import Tensor
from vllm_ascend_spec.checkpoint.tensors import Shape, Table

STAGE = re.compile(r"(emb|proj|head|ln)\.(\d+)\.(weight|bias)")


@dataclass(frozen=True)
class MlpSizes:
    """What decides the tensors of an MLP speculator.

    Attributes:
        hidden: width of the target.
        inner: width of the state that is carried from stage to stage.
        vocab: size of the target's vocabulary.
        num_drafts: how many stages there are.
        tied: whether stages share all weights except the first stage's projection.
        scales_input: whether the target's state is normalized first.
    """

    hidden: int
    inner: int
    vocab: int
    num_drafts: int
    tied: bool
    scales_input: bool

    def owner(self, part: str, stage: int) -> int:
        """Return the first stage that has the same weights for a part."""
        return min(stage, 1 if part == "proj" else 0) if self.tied else stage

    def rename(self, name: str) -> str:
        """Return a tensor's name without ``speculator.``.

        Where stages share a tensor, the name has the number of the first of them.
        """
        name = name.removeprefix("speculator.")
        match = STAGE.fullmatch(name)
        if match is None or int(match[2]) >= self.num_drafts:
            return name
        return f"{match[1]}.{self.owner(match[1], int(match[2]))}.{match[3]}"

    def check_rest(self, tensors: dict[str, Tensor]) -> None:
        """Do nothing: all tensors are weights."""

    def table(self, tensors: Mapping[str, Tensor]) -> Table:
        """Return the tensors that have to be there."""
        rows = Shape((self.vocab, self.inner), "vocab_size and inner_dim")
        first = Shape((self.inner, self.hidden), "inner_dim and emb_dim")
        later = Shape((self.inner, self.inner), "inner_dim")
        row = Shape((self.inner,), "inner_dim")
        outside = {}
        for stage in range(self.num_drafts):
            outside[f"emb.{self.owner('emb', stage)}.weight"] = rows
            outside[f"proj.{self.owner('proj', stage)}.weight"] = later if stage else first
            outside[f"ln.{self.owner('ln', stage)}.weight"] = row
            outside[f"ln.{self.owner('ln', stage)}.bias"] = row
        return Table(
            name="MLPSpeculatorPreTrainedModel",
            outside=outside,
            stack="head.",
            layers=1 if self.tied else self.num_drafts,
            layer=lambda stage: {"weight": rows},
            count="n_predict",
        )


def count_of(config: Mapping[str, Any]) -> int:
    """Return how many stages there are.

    Raises:
        InvalidCheckpointError: the config does not say.
    """
    return config_json.size(config, "n_predict")


def sizes_of(
    config: Mapping[str, Any], target: Mapping[str, Any] | None, tensors: Mapping[str, Tensor]
) -> MlpSizes:
    """Read and check the sizes.

    Raises:
        InvalidCheckpointError: one is missing, of another type, or not the target's.
    """
    hidden = config_json.size(config, "emb_dim")
    if target is not None:
        require_same("emb_dim", hidden, "hidden_size", target.get("hidden_size"))
    inner = hidden
    if config.get("inner_dim") != 0:  # 0 stands for the target's width
        inner = config_json.size(config, "inner_dim", hidden)
    return MlpSizes(
        hidden=hidden,
        inner=inner,
        vocab=config_json.size(config, "vocab_size"),
        num_drafts=count_of(config),
        tied=config_json.flag(config, "tie_weights"),
        scales_input=config_json.flag(config, "scale_input"),
    )
