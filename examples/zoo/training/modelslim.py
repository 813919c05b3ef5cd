"""Quantize a checkpoint to W8A8 in ModelSlim's format.

The arithmetic is that of the converter Ascend/msmodelslim; what a range of activations is, prompts
say that the model reads.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from vllm_ascend_spec.quantization import reference
from vllm_ascend_spec.quantization.description import DYNAMIC, FLOAT, NAME, STATIC

WEIGHTS = "quant_model_weights.safetensors"
FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
# As ModelSlim's recipes do: what is most sensitive stays in float in static checkpoints.
IN_FLOAT = ("lm_head", "down_proj")
# Of other checkpoints projections of attention and of MLPs, but for the one that MLA takes apart,
# and an indexer's: vLLM joins some of them to one matrix that it never quantizes.
QUANTIZED = re.compile(r"\.(self_attn|mlp)\.(?!indexer\.).*(?<!\bkv_b)_proj(_with_mqa)?\.weight$")


def quantize_dynamic(source: Path, target: Path) -> None:
    """Write ``source`` with type ``W8A8_DYNAMIC`` into ``target``.

    Args:
        source: folder of any checkpoint, a head's too.
        target: folder to write.
    """
    tensors, types = {}, {}
    for file in sorted(source.glob("*.safetensors")):
        for name, value in load_file(file).items():
            if not QUANTIZED.search(name):
                tensors[name], types[name] = value, FLOAT
                continue
            weight, scale = reference.quantize_weight(value)
            parts = {"": weight, "_scale": scale, "_offset": torch.zeros_like(scale)}
            for ending, part in parts.items():
                tensors[f"{name}{ending}"], types[f"{name}{ending}"] = part, DYNAMIC
    config = json.loads((source / "config.json").read_text())
    _write(source, target, DYNAMIC, tensors, types, config)


def quantize_static(
    source: Path, target: Path, prompts: Iterable[str], dtype: torch.dtype = torch.bfloat16
) -> None:
    """Write ``source`` with type ``W8A8`` into ``target``.

    Args:
        source: folder of a Llama model.
        target: folder to write.
        prompts: texts that tell the ranges of activations.
        dtype: of activations, and of what stays in float.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    linears = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and not name.endswith(IN_FLOAT)
    }
    ranges = _ranges(model, AutoTokenizer.from_pretrained(source), linears, prompts)
    tensors, types = {}, {}
    for name, value in model.state_dict().items():
        prefix, _, last = name.rpartition(".")
        if prefix not in linears:
            tensors[name], types[name] = value.to(dtype), FLOAT
        elif last == "weight":
            for part, quantized in _static_layer(linears[prefix], ranges[prefix], dtype).items():
                tensors[f"{prefix}.{part}"] = quantized.contiguous()
                types[f"{prefix}.{part}"] = STATIC
    if model.config.tie_word_embeddings:
        for made in (tensors, types):
            made.pop("lm_head.weight", None)
    config = json.loads((source / "config.json").read_text())
    config["dtype"] = str(dtype).removeprefix("torch.")
    _write(source, target, STATIC, tensors, types, config)


def _write(
    source: Path,
    target: Path,
    kind: str,
    tensors: dict[str, torch.Tensor],
    types: Mapping[str, str],
    config: Mapping[str, object],
) -> None:
    target.mkdir(parents=True, exist_ok=True)
    save_file(tensors, target / WEIGHTS, {"format": "pt"})
    described = {"model_quant_type": kind, "version": "1.0.0", **types}
    (target / NAME).write_text(json.dumps(described, indent=2) + "\n")
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for file in FILES:
        if (source / file).exists():
            shutil.copy(source / file, target)


def _static_layer(
    linear: torch.nn.Linear, ranges: tuple[float, float], dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    scale, offset = reference.input_range(*ranges)
    # As vllm-ascend keeps it, so that the products of both scales agree.
    scale = scale.to(dtype).float()
    bias = None if linear.bias is None else linear.bias.data
    made = reference.quantize_static(linear.weight.data, bias, scale, offset)
    return {
        "weight": made.weight,
        "input_scale": made.input_scale,
        "input_offset": made.input_offset,
        "deq_scale": _encoded(made.deq_scale, dtype),
        "quant_bias": made.quant_bias,
    }


def _encoded(
    scale: torch.Tensor,  # float32
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return scales as an NPU's kernel wants them: for float16 their bits, in int64."""
    return scale if dtype == torch.bfloat16 else scale.view(torch.int32).to(torch.int64)


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
