"""Fast int8 multiplication with the kernels that vLLM has for each kind of device.

A layer's weights are converted to the kernel's layout once, after loading; ``reference.py`` defines
the results.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from vllm_ascend_spec.quantization.reference import StaticWeights

# Number of shapes for which oneDNN caches compiled kernels; the same as in vLLM.
KEPT_SHAPES = 32
# CUTLASS's kernels end the engine with other dtypes, or sizes that are no multiples of this step.
CUTLASS_DTYPES = (torch.bfloat16, torch.float16)
CUTLASS_STEP = 16


class Multiply(Protocol):
    """A layer's multiplication."""

    def __call__(
        self,
        x: torch.Tensor,  # [rows, inputs]
    ) -> torch.Tensor:
        """Return [rows, outputs], of the dtype of ``x``."""
        ...


class OneDnnStatic:
    """A layer of type ``W8A8`` on a CPU.

    The kernel scales the sums and adds the bias in float32.

    Args:
        layer: the layer's parameters.
        adds_bias: whether this shard of the layer adds the bias.
    """

    def __init__(self, layer: StaticWeights, *, adds_bias: bool) -> None:
        from vllm import _custom_ops as ops

        self._ops = ops
        # The kernel divides by the scale, vllm-ascend multiplies by its reciprocal.
        self._scale = (1 / (1 / layer.input_scale)).contiguous()
        self._offset = layer.input_offset.round().to(torch.int32)
        self._one = torch.ones(1, dtype=torch.float32)
        self._bias = layer.quant_bias.float() * layer.deq_scale if adds_bias else None
        self._outputs = layer.weight.shape[0]
        # The kernel copies the weight, but reads these scales in place.
        self._scales = layer.deq_scale.view(-1, 1).clone()
        self._handler = ops.create_onednn_scaled_mm(
            layer.weight.t(), self._scales, torch.float32, False, False, KEPT_SHAPES
        )

    def __call__(
        self,
        x: torch.Tensor,  # [rows, inputs]
    ) -> torch.Tensor:
        """Return [rows, outputs], of the dtype of ``x``."""
        quantized, _, _ = self._ops.onednn_scaled_int8_quant(
            x.float().contiguous(), self._scale, self._offset, False
        )
        out = torch.empty((x.shape[0], self._outputs), dtype=torch.float32)
        # The bias includes the offset, so the kernel gets none.
        self._ops.onednn_scaled_mm(self._handler, quantized, out, self._one, None, None, self._bias)
        return out.to(x.dtype)


class OneDnnDynamic:
    """A layer of type ``W8A8_DYNAMIC`` on a CPU.

    Args:
        weight: int8, [outputs, inputs].
        weight_scale: float32, [outputs, 1].
    """

    def __init__(
        self,
        weight: torch.Tensor,  # [outputs, inputs]
        weight_scale: torch.Tensor,  # [outputs, 1]
    ) -> None:
        from vllm import _custom_ops as ops

        self._ops = ops
        self._outputs = weight.shape[0]
        self._scales = weight_scale.float().view(-1, 1).clone()
        self._handler = ops.create_onednn_scaled_mm(
            weight.t(), self._scales, torch.float32, True, False, KEPT_SHAPES
        )

    def __call__(
        self,
        x: torch.Tensor,  # [rows, inputs]
    ) -> torch.Tensor:
        """Return [rows, outputs], of the dtype of ``x``."""
        quantized, scale, _ = self._ops.onednn_scaled_int8_quant(
            x.float().contiguous(), None, None, True
        )
        out = torch.empty((x.shape[0], self._outputs), dtype=torch.float32)
        self._ops.onednn_scaled_mm(self._handler, quantized, out, scale, None, None, None)
        return out.to(x.dtype)


class OtherStatic(torch.nn.Module):
    """A layer of type ``W8A8``, run by the kernel that vLLM chooses for the device.

    That kernel subtracts the offset from the sums itself, so the bias is built without it.

    Args:
        layer: the layer's parameters.
        adds_bias: whether this shard of the layer adds the bias.
        dtype: dtype of the activations.
    """

    def __init__(self, layer: StaticWeights, *, adds_bias: bool, dtype: torch.dtype) -> None:
        super().__init__()
        offset = layer.input_offset.round().to(torch.int64)
        whole = offset * layer.weight.sum(dim=1, dtype=torch.int64)
        if adds_bias:
            whole = whole + layer.quant_bias
        self.bias = (whole.double() * layer.deq_scale.double()).to(dtype)
        self.logical_widths = [layer.weight.shape[0]]
        self.register_parameter("weight", _fixed(layer.weight))
        scale = layer.deq_scale / layer.input_scale
        self.register_parameter("weight_scale", _fixed(scale.view(-1, 1)))
        self.register_parameter("input_scale", _fixed(layer.input_scale))
        self.register_parameter("input_zero_point", _fixed(offset.to(torch.int8)))
        self.register_parameter("azp_adj", None)
        self._kernel = _kernel(layer.weight, dtype, is_static=True)
        self._kernel.process_weights_after_loading(self)

    def forward(
        self,
        x: torch.Tensor,  # [rows, inputs]
    ) -> torch.Tensor:
        """Return [rows, outputs], of the dtype of ``x``."""
        return self._kernel.apply_weights(self, x, self.bias)


class OtherDynamic(torch.nn.Module):
    """A layer of type ``W8A8_DYNAMIC``, run by the kernel that vLLM chooses for the device.

    Args:
        weight: int8, [outputs, inputs].
        weight_scale: float32, [outputs, 1].
        dtype: dtype of the activations.
    """

    def __init__(
        self,
        weight: torch.Tensor,  # [outputs, inputs]
        weight_scale: torch.Tensor,  # [outputs, 1]
        *,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.bias = None
        self.logical_widths = [weight.shape[0]]
        self.register_parameter("weight", _fixed(weight))
        self.register_parameter("weight_scale", _fixed(weight_scale.float()))
        for name in ("input_scale", "input_zero_point", "azp_adj"):
            self.register_parameter(name, None)
        self._kernel = _kernel(weight, dtype, is_static=False)
        self._kernel.process_weights_after_loading(self)

    def forward(
        self,
        x: torch.Tensor,  # [rows, inputs]
    ) -> torch.Tensor:
        """Return [rows, outputs], of the dtype of ``x``."""
        return self._kernel.apply_weights(self, x, None)


def static(layer: StaticWeights, *, adds_bias: bool, dtype: torch.dtype) -> Multiply:
    """Return the fast multiplication of a layer of type ``W8A8``."""
    if layer.weight.device.type == "cpu":
        return OneDnnStatic(layer, adds_bias=adds_bias)
    return OtherStatic(layer, adds_bias=adds_bias, dtype=dtype)


def dynamic(
    weight: torch.Tensor,  # [outputs, inputs]
    weight_scale: torch.Tensor,  # [outputs, 1]
    *,
    dtype: torch.dtype,
) -> Multiply:
    """Return the fast multiplication of a layer of type ``W8A8_DYNAMIC``."""
    if weight.device.type == "cpu":
        return OneDnnDynamic(weight, weight_scale)
    return OtherDynamic(weight, weight_scale, dtype=dtype)


def _fixed(values: torch.Tensor) -> torch.nn.Parameter:
    return torch.nn.Parameter(values, requires_grad=False)


def _kernel(
    weight: torch.Tensor,  # [outputs, inputs]
    dtype: torch.dtype,
    *,
    is_static: bool,
) -> Any:
    """Return the kernel that vLLM chooses for the device, or one that supports the layer."""
    from vllm.model_executor.kernels.linear import init_int8_linear_kernel
    from vllm.model_executor.kernels.linear.scaled_mm import cutlass, triton

    chosen = init_int8_linear_kernel(
        is_channelwise=True,
        is_static_input_scheme=is_static,
        input_symmetric=not is_static,
        module_name="--quantization ascend",
    )
    # vLLM does not check whether a kernel supports the layer's shape and dtype.
    fits = dtype in CUTLASS_DTYPES and not any(size % CUTLASS_STEP for size in weight.shape)
    if type(chosen) is cutlass.CutlassInt8ScaledMMLinearKernel and not fits:
        return triton.TritonInt8ScaledMMLinearKernel(chosen.config, chosen.layer_param_names)
    return chosen
