"""A draft as it was asked for, and what its folder holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_ascend_spec.checkpoint.config_json import read_config, text_of
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, blame, short_value
from vllm_ascend_spec.checkpoint.files import is_mistral_format, read_checkpoint
from vllm_ascend_spec.checkpoint.quantization import is_quantized
from vllm_ascend_spec.checkpoint.safetensors import Tensor

# Formats in which vLLM reads safetensors under the names that transformers gives them.
PLAIN_FORMATS = ("auto", "hf", "safetensors", "fastsafetensors", "instanttensor", "mistral")


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint's folder holds.

    Attributes:
        config: what ``config.json`` says.
        text: the text part of ``config`` if the model is multimodal, else all of it.
        tensors: tensors by name.
        quantized: whether weights are quantized and so may have any name, shape and dtype.
        usual_names: whether tensors are named as transformers names them.
    """

    config: Mapping[str, Any]
    text: Mapping[str, Any]
    tensors: dict[str, Tensor]
    quantized: bool
    usual_names: bool


@dataclass(frozen=True)
class Draft:
    """A draft as it was asked for.

    Attributes:
        option: the option that names the model.
        model: the model as it was given.
        folder: where it is.
        target: the target's folder, or None.
        load_format: how vLLM is to read it.
        quantization: the option of that name, or None.
        family: family of the draft loops that run it; None if unknown.
        in_one_pass: whether it makes all drafts in one pass.
    """

    option: str
    model: str
    folder: Path
    target: Path | None = None
    load_format: str = "auto"
    quantization: object = None
    family: str | None = None
    in_one_pass: bool = False

    def read(self, *same: str) -> Checkpoint:
        """Read config and headers, and compare the entries ``same`` with the target's.

        Raises:
            CheckpointError: something is damaged or does not fit.
        """
        with blame(self.option, self.model):
            config = read_config(self.folder)
            found = Checkpoint(
                config=config,
                text=text_of(config),
                tensors=read_checkpoint(self.folder),
                quantized=bool(self.quantization) or is_quantized(self.folder, config),
                usual_names=self.load_format in PLAIN_FORMATS
                and not is_mistral_format(self.folder),
            )
        if (theirs := self.target_text()) is not None:
            with blame(self.option, self.model):
                _require_same(found.text, theirs, same)
        return found

    def target_text(self) -> Mapping[str, Any] | None:
        """Return the text part of the target's config; None if its folder is not known.

        Raises:
            CheckpointError: it cannot be read.
        """
        if self.target is None:
            return None
        with blame("model", str(self.target)):
            return text_of(read_config(self.target))


def _require_same(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], names: tuple[str, ...]
) -> None:
    for name in names:
        own, other = ours.get(name), theirs.get(name)
        if own is not None and other is not None and own != other:
            raise InvalidCheckpointError(
                f"its {name} is {short_value(own)}, the target's is {short_value(other)}; "
                "a draft has to be made for its target"
            )
