"""A KV connector that works layer by layer, for caches as vllm-ascend has them.

vLLM's ``ExampleConnector`` takes a layer's cache for one tensor. Those of vllm-ascend are two, keys
and values, so it ends there with an AttributeError, with or without speculation.
"""

from __future__ import annotations

from typing import Any

import torch
from safetensors.torch import load_file, save_file
from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector


class LayerConnector(ExampleConnector):
    """Saves and loads keys and values of prompts, one file for each layer."""

    def _rows(self, request: Any, part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the block and the place within it of each token, in one of a layer's tensors."""
        slots, size = request.slot_mapping.to(part.device), part.shape[1]
        return slots // size, slots % size

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **_: Any) -> None:
        """Save a layer; the signature is vLLM's."""
        for request in self._get_connector_metadata().requests:
            if request.is_store:
                name = (layer_name, request.token_ids, request.mm_hashes)
                saved = {
                    str(place): part[self._rows(request, part)].cpu()
                    for place, part in enumerate(kv_layer)
                }
                save_file(saved, self._generate_filename_debug(*name))

    def start_load_kv(self, forward_context: Any, **_: Any) -> None:
        """Load every layer; the signature is vLLM's."""
        for request in self._get_connector_metadata().requests:
            layers = {} if request.is_store else forward_context.no_compile_layers
            for layer_name, layer in layers.items():
                name = (layer_name, request.token_ids, request.mm_hashes)
                saved = load_file(self._generate_filename_debug(*name))
                for place, part in enumerate(layer.kv_cache):
                    part[self._rows(request, part)] = saved[str(place)].to(part.device)
