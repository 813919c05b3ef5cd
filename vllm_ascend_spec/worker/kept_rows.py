"""Keys and values of the rows that verify trees, kept until the accepted paths are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

# Bytes of accepted rows that are read at once; memory was measured without them.
MOST_BYTES = 64 << 20
# Of a layer that has no buffer yet.
NOTHING = torch.empty(2, 0)


class KeptRows:
    """Lets layers attend along paths, each with a buffer for the rows of a step.

    Layers of equal sizes share a tensor, so accepted rows of several are read at once.

    Args:
        layers: vLLM's layers by name. The attention that each has becomes that of ``impl``.
        impl: a subclass of its class; its forward writes to ``kept``,
            [2, most_rows, num_kv_heads, head_size].
        most_rows: most rows of a step.
        dtype: of keys and values.
        device: their device.
    """

    def __init__(
        self,
        layers: Mapping[str, Any],
        impl: type,
        most_rows: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._layers = layers
        alike: dict[tuple[int, int], list[str]] = {}
        for name, layer in layers.items():
            alike.setdefault((layer.impl.num_kv_heads, layer.impl.head_size), []).append(name)
        self._stacks = []
        for sizes, names in alike.items():
            kept = torch.zeros((len(names), 2, most_rows, *sizes), dtype=dtype, device=device)
            self._stacks.append((names, kept))
            for name, own in zip(names, kept, strict=True):
                layers[name].impl.__class__ = impl
                layers[name].impl.kept = own

    def write(
        self,
        rows: torch.Tensor,  # [num_tokens]
        metadata: Mapping[str, Any],
        places: torch.Tensor,  # [num_tokens]
    ) -> None:
        """Write kept rows to slots of the KV cache, by the attention's own update.

        Args:
            rows: int64, which of the rows that were kept.
            metadata: the step's attention metadata by layer.
            places: int64, the rows of the batch to whose slots they are written.
        """
        slots: dict[int, torch.Tensor] = {}
        for name, (key, value) in self._read(rows):
            layer, whole = self._layers[name], metadata[name]
            if id(whole) not in slots:
                slots[id(whole)] = whole.slot_mapping[places]
            layer.impl.do_kv_cache_update(layer, key, value, layer.kv_cache, slots[id(whole)])

    def _read(self, rows: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield each layer's name with kept rows of it, [2, num_tokens, num_kv_heads, head_size].

        Args:
            rows: int64 [num_tokens].
        """
        for names, stack in self._stacks:
            of_a_layer = 2 * rows.shape[0] * stack[0, 0, 0].nbytes
            at_once = max(1, MOST_BYTES // of_a_layer)
            for first in range(0, len(names), at_once):
                part = slice(first, first + at_once)
                yield from zip(names[part], stack[part][:, :, rows], strict=True)
