"""Quantize a checkpoint to W8A8 in ModelSlim's format.

The arithmetic is that of the converter Ascend/msmodelslim; what a range of activations is, prompts
say that the model reads.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

from vllm_ascend_spec.quantization import reference
from vllm_ascend_spec.quantization.description import DYNAMIC, FLOAT, NAME, STATIC

WEIGHTS = "quant_model_weights.safetensors"
FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
# As ModelSlim's recipes do: what is most sensitive stays in float in static checkpoints.
IN_FLOAT: Mapping[str, Sequence[str]] = {
    STATIC: ("lm_head", "down_proj"),
    DYNAMIC: ("lm_head",),
}


def quantize(source: Path, target: Path, kind: str, prompts: Iterable[str]) -> None:
    """Write ``source``, quantized, into ``target``.

    Args:
        source: folder of a Llama model.
        target: folder to write.
        kind: ``W8A8`` or ``W8A8_DYNAMIC``.
        prompts: texts that tell the ranges of activations.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    linears = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and not name.endswith(tuple(IN_FLOAT[kind]))
    }
    ranges = _ranges(model, AutoTokenizer.from_pretrained(source), linears, prompts)
    tensors, types = {}, {}
    for name, value in model.state_dict().items():
        prefix, _, last = name.rpartition(".")
        if prefix not in linears:
            tensors[name], types[name] = value.to(torch.bfloat16), FLOAT
        elif last == "weight":
            for part, quantized in _layer(linears[prefix], kind, ranges[prefix]).items():
                tensors[f"{prefix}.{part}"] = quantized.contiguous()
                types[f"{prefix}.{part}"] = kind
    if model.config.tie_word_embeddings:
        for made in (tensors, types):
            made.pop("lm_head.weight", None)
    target.mkdir(parents=True, exist_ok=True)
    save_file(tensors, target / WEIGHTS, {"format": "pt"})
    described = {"model_quant_type": kind, "version": "1.0.0", **types}
    (target / NAME).write_text(json.dumps(described, indent=2) + "\n")
    shutil.copy(source / "config.json", target)
    for file in FILES:
        if (source / file).exists():
            shutil.copy(source / file, target)


def _layer(
    linear: torch.nn.Linear, kind: str, ranges: tuple[float, float]
) -> dict[str, torch.Tensor]:
    if kind == DYNAMIC:
        weight, scale = reference.quantize_weight(linear.weight.data)
        parts = {"weight": weight, "weight_scale": scale, "weight_offset": torch.zeros_like(scale)}
        return parts if linear.bias is None else {**parts, "bias": linear.bias.data.float()}
    scale, offset = reference.input_range(*ranges)
    # As vllm-ascend keeps it, so that the products of both scales agree.
    scale = scale.to(torch.bfloat16).float()
    bias = None if linear.bias is None else linear.bias.data
    made = reference.quantize_static(linear.weight.data, bias, scale, offset)
    return {
        "weight": made.weight,
        "input_scale": made.input_scale,
        "input_offset": made.input_offset,
        "deq_scale": made.deq_scale,
        "quant_bias": made.quant_bias,
    }


@torch.no_grad()
def _ranges(
    model: torch.nn.Module,
    tokenizer: object,
    linears: Mapping[str, torch.nn.Module],
    prompts: Iterable[str],
) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest input of each layer."""
    ranges = dict.fromkeys(linears, (0.0, 0.0))

    def watch(name: str) -> object:
        def hook(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            low, high = ranges[name]
            ranges[name] = (
                min(low, inputs[0].min().item()),
                max(high, inputs[0].max().item()),
            )

        return hook

    hooks = [module.register_forward_pre_hook(watch(name)) for name, module in linears.items()]
    for prompt in prompts:
        model(tokenizer(prompt, return_tensors="pt").input_ids)
    for hook in hooks:
        hook.remove()
    return ranges
