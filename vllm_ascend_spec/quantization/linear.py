"""Load and run linear layers that ModelSlim quantized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from vllm.model_executor.layers.linear import LinearMethodBase, RowParallelLinear
from vllm.model_executor.utils import set_weight_attrs

from vllm_ascend_spec.errors import CheckpointError
from vllm_ascend_spec.quantization import matmul
from vllm_ascend_spec.quantization.description import NAME
from vllm_ascend_spec.quantization.reference import INT8, StaticWeights, decode_scale

Load = Callable[..., Any]
# Valid values of the parameters in a checkpoint, for messages.
VALID = {
    "input_scale": "above 0",
    "input_offset": f"a whole number from {INT8.min} to {INT8.max}",
    "deq_scale": "0 or above",
    "weight_scale": "0 or above",
}


class Int8LinearMethod(LinearMethodBase):
    """Base class of both types: an int8 weight, and a multiplication built after loading.

    Args:
        prefix: the layer's name, for messages.
        is_dummy: whether its weights are dummies (``--load-format dummy``).
    """

    def __init__(self, prefix: str, *, is_dummy: bool = False) -> None:
        self.prefix = prefix
        self._is_dummy = is_dummy
        self._multiply: matmul.Multiply | None = None

    def create_weights(
        self,
        layer: torch.nn.Module,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **extra_weight_attrs: Any,
    ) -> None:
        """Make the layer's parameters; the signature is vLLM's."""
        outputs = sum(output_partition_sizes)
        load = extra_weight_attrs["weight_loader"]
        weight = torch.empty(outputs, input_size_per_partition, dtype=torch.int8)
        self._add(layer, "weight", weight, load, input_dim=1, output_dim=0)
        # Static layers may have them but do not need them.
        for name in ("weight_scale", "weight_offset"):
            self._add(layer, name, torch.zeros(outputs, 1, dtype=torch.float32), load, output_dim=0)
        self._create_scales(layer, outputs, load)
        self._dtype = params_dtype

    def _create_scales(self, layer: torch.nn.Module, outputs: int, load: Load) -> None:
        raise NotImplementedError

    def _add(
        self, layer: torch.nn.Module, name: str, data: torch.Tensor, load: Load, **attributes: Any
    ) -> None:
        parameter = torch.nn.Parameter(data, requires_grad=False)
        set_weight_attrs(parameter, {**attributes, "weight_loader": load})
        layer.register_parameter(name, parameter)

    def _require(self, layer: torch.nn.Module, **are_valid: torch.Tensor) -> None:
        """Raise unless all values of the given parameters are valid.

        Args:
            layer: the layer.
            **are_valid: for each parameter, by name, which of its values are valid.

        Raises:
            CheckpointError: some are not; the model's output would be noise or NaN.
        """
        for name, valid in are_valid.items():
            if not self._is_dummy and not bool(valid.all()):
                wrong = getattr(layer, name).data[~valid].flatten()[0].item()
                problem = f"is {wrong}; valid: {VALID[name]}"
                raise CheckpointError("model", f"{self.prefix}.{name}", problem)

    def _drop(self, layer: torch.nn.Module) -> None:
        """Free the parameters that the multiplication now holds."""
        for name in ("weight_scale", "weight_offset"):
            delattr(layer, name)
        # Other code reads a layer's device from its weight.
        layer.weight.data = layer.weight.data.new_empty(0)


class StaticLinearMethod(Int8LinearMethod):
    """Layers of type ``W8A8``: one range for all activations."""

    def _create_scales(self, layer: torch.nn.Module, outputs: int, load: Load) -> None:
        for name in ("input_scale", "input_offset"):
            self._add(
                layer, name, torch.full((1,), torch.nan, dtype=torch.float32), self._load_same
            )
        quant_bias = torch.zeros(outputs, dtype=torch.int32)
        self._add(layer, "quant_bias", quant_bias, load, output_dim=0)
        self._add(
            layer,
            "deq_scale",
            torch.zeros(outputs, dtype=torch.float32),
            _decoding(load),
            output_dim=0,
        )

    def _load_same(
        self,
        parameter: torch.nn.Parameter,  # [1]
        loaded: torch.Tensor,  # one number
        *_shard: Any,
    ) -> None:
        """Load a value that all parts of a fused layer must share.

        Raises:
            CheckpointError: they do not share it.
        """
        value = loaded.float().reshape(1).to(parameter.device)
        before = parameter.data
        if not torch.isnan(before).item() and not torch.equal(before, value):
            problem = f"fused layers have different ones: {before.item()} and {value.item()}"
            raise CheckpointError(f"{NAME}, {self.prefix}", "input_scale or input_offset", problem)
        parameter.data.copy_(value)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Convert the layer's weights to its kernel's layout."""
        is_first = not isinstance(layer, RowParallelLinear) or layer.tp_rank == 0
        number, offset, deq = (
            getattr(layer, name).data for name in ("input_scale", "input_offset", "deq_scale")
        )
        self._require(
            layer,
            input_scale=(number > 0) & number.isfinite(),
            input_offset=(offset.round() == offset) & (offset >= INT8.min) & (offset <= INT8.max),
            deq_scale=(deq >= 0) & deq.isfinite(),
        )
        # Rounded to the model's dtype, as in vllm-ascend.
        scale = layer.input_scale.data.to(self._dtype).float()
        weights = StaticWeights(
            layer.weight.data,
            scale,
            layer.input_offset.data,
            layer.deq_scale.data,
            layer.quant_bias.data,
        )
        self._multiply = matmul.static(weights, adds_bias=is_first, dtype=self._dtype)
        self._drop(layer)

    def apply(
        self,
        layer: torch.nn.Module,
        x: torch.Tensor,  # [..., inputs]
        bias: torch.Tensor | None = None,  # [outputs]; unused, quant_bias includes it
    ) -> torch.Tensor:
        """Return [..., outputs]."""
        assert self._multiply is not None
        return self._multiply(x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], -1)


class DynamicLinearMethod(Int8LinearMethod):
    """Layers of type ``W8A8_DYNAMIC``: each token has a range of its own."""

    def _create_scales(self, layer: torch.nn.Module, outputs: int, load: Load) -> None:
        pass

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Convert the layer's weights to its kernel's layout."""
        scale = layer.weight_scale.data
        self._require(layer, weight_scale=(scale >= 0) & scale.isfinite())
        self._multiply = matmul.dynamic(layer.weight.data, scale, dtype=self._dtype)
        self._drop(layer)

    def apply(
        self,
        layer: torch.nn.Module,
        x: torch.Tensor,  # [..., inputs]
        bias: torch.Tensor | None = None,  # [outputs]
    ) -> torch.Tensor:
        """Return [..., outputs]."""
        assert self._multiply is not None
        found = self._multiply(x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], -1)
        return found if bias is None else found + bias


def _decoding(load: Load) -> Load:
    """Return a loader that reads scales in either form of :func:`decode_scale`."""

    def load_scale(parameter: torch.nn.Parameter, loaded: torch.Tensor, *shard: Any) -> Any:
        return load(parameter, decode_scale(loaded), *shard)

    return load_scale
