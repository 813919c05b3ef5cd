"""vLLM's ``--quantization ascend`` on devices without vllm-ascend."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import torch
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.layers.quantization.base_config import (
    QuantizationConfig,
    QuantizeMethodBase,
)
from vllm.model_executor.layers.vocab_parallel_embedding import (
    UnquantizedEmbeddingMethod,
    VocabParallelEmbedding,
)

from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, blame
from vllm_ascend_spec.checkpoint.folder import find_folder
from vllm_ascend_spec.errors import CheckpointError
from vllm_ascend_spec.quantization.description import (
    FLOAT,
    NAME,
    PACKED,
    STATIC,
    Description,
    check_checkpoint,
    parse_description,
)
from vllm_ascend_spec.quantization.experts import DynamicExpertsMethod
from vllm_ascend_spec.quantization.linear import DynamicLinearMethod, StaticLinearMethod

OPTION = "--quantization"
METHOD = "ascend"
LAYER = re.compile(r"(\blayers\.)(\d+)\.")
ONLY_THERE = "only vllm-ascend runs that, on an NPU"


class ModelSlimConfig(QuantizationConfig):
    """Quantization config of a model, from ModelSlim's description of it."""

    def __init__(self) -> None:
        super().__init__()
        self.description = Description({})
        self._model = ""

    @classmethod
    def get_name(cls) -> str:
        """Return the method's name, the same as in vllm-ascend."""
        return METHOD

    @classmethod
    def get_supported_act_dtypes(cls) -> list[torch.dtype]:
        """Return vllm-ascend's dtypes, and float32, which only an NPU lacks here."""
        return [torch.bfloat16, torch.float16, torch.float32]

    @classmethod
    def get_min_capability(cls) -> int:
        """Return the compute capability that vLLM's int8 kernels need of a GPU."""
        return 75

    @classmethod
    def get_config_filenames(cls) -> list[str]:
        """Return none: :meth:`maybe_update_config` reads the description."""
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> ModelSlimConfig:
        """Return an empty config; what ``config.json`` contains is not a description."""
        return cls()

    def maybe_update_config(
        self, model_name: str, hf_config: Any = None, revision: str | None = None
    ) -> None:
        """Read the description of the model; the signature is vLLM's.

        Raises:
            CheckpointError: it is missing or wrong, or a tensor does not fit it.
        """
        self._model = model_name
        folder = find_folder("model", model_name, revision)
        with blame("model", model_name):
            self.description = (
                _fetched(model_name, revision) if folder is None else check_checkpoint(folder)
            )

    def apply_vllm_mapper(self, hf_to_vllm_mapper: Any) -> None:
        """Rename layers to the names in vLLM's model."""
        named = {f"{name}.weight": kind for name, kind in self.description.types.items()}
        mapped = hf_to_vllm_mapper.apply_dict(named)
        types = {name.removesuffix(".weight"): kind for name, kind in mapped.items()}
        self.description = replace(self.description, types=types)

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> QuantizeMethodBase | None:
        """Return how a layer is loaded and run.

        Raises:
            CheckpointError: it is quantized in a way that only vllm-ascend supports.
        """
        # vLLM fills packed_modules_mapping for a target, but not for a head with its own config.
        packed = {**PACKED, **self.packed_modules_mapping}
        with blame("model", self._model):
            prefix = self._described_as(prefix)
            kind = self.description.type_of(prefix, packed.get(prefix.rpartition(".")[2]))
            if isinstance(layer, LinearBase):
                if kind == FLOAT:
                    return UnquantizedLinearMethod()
                made = StaticLinearMethod if kind == STATIC else DynamicLinearMethod
                return made(prefix, is_dummy=_is_dummy())
            if isinstance(layer, VocabParallelEmbedding):
                if kind != FLOAT:
                    raise InvalidCheckpointError(f"{NAME}: {prefix}.weight is {kind}; {ONLY_THERE}")
                return UnquantizedEmbeddingMethod()
            if (
                isinstance(layer, RoutedExperts)
                and self.description.type_of_experts(prefix) != FLOAT
            ):
                return DynamicExpertsMethod(layer.moe_config)
        return None

    def _described_as(self, prefix: str) -> str:
        """Return a layer's name in the description; the engine renames a draft's layers."""
        name = prefix.removeprefix("draft_model.")
        config = get_current_vllm_config()
        target = config.model_config.get_num_layers(config.parallel_config)
        # A head's layers are numbered after the target's; its own names lack the "model." prefix.
        counted = LAYER.sub(lambda m: f"{m[1]}{int(m[2]) - target}.", name)
        bare = counted.removeprefix("model.")
        # EAGLE-3 calls its one layer "midlayer"; vLLM 0.23 omits part of its projection's name.
        middle = LAYER.sub("midlayer.", bare).replace("midlayer.qkv", "midlayer.self_attn.qkv")
        # MiMo calls its layers for multi-token prediction "mtp_layers".
        mtp = counted.replace("layers.", "mtp_layers.", 1)
        names = (prefix, name, name.removeprefix("model."), bare, middle, mtp)
        return next((n for n in names if self._knows(n)), prefix)

    def _knows(self, name: str) -> bool:
        """Tell whether a layer, or a sibling of it, is in the description."""
        beside = f"{name.rpartition('.')[0]}."
        return beside != "." and any(known.startswith(beside) for known in self.description.types)


def _is_dummy() -> bool:
    return str(get_current_vllm_config().load_config.load_format) == "dummy"


def _fetched(model: str, revision: str | None) -> Description:
    """Return the description of a model on a hub.

    Raises:
        InvalidCheckpointError: it is wrong.
        CheckpointError: there is none.
    """
    from vllm.transformers_utils.repo_utils import get_hf_file_to_dict

    content = get_hf_file_to_dict(NAME, model, revision or "main")
    if content is None:
        raise CheckpointError("model", model, f"has no {NAME}, which {OPTION} {METHOD} needs")
    return parse_description(content)


def register() -> None:
    """Register the method with vLLM, unless something else has."""
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

    if METHOD not in QUANTIZATION_METHODS:
        register_quantization_config(METHOD)(ModelSlimConfig)
