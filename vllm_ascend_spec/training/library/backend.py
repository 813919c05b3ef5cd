"""How the trainer gets hidden states: from our store, by the ids in the dataset."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from hs_connectors import HiddenStatesBackend, HiddenStatesTransfer

from vllm_ascend_spec.training.library.arguments import BACKEND
from vllm_ascend_spec.training.library.dataset import ID
from vllm_ascend_spec.training.shards import ShardReader


class ShardTransfer(HiddenStatesTransfer):
    """Reads samples of a store by their place in the dataset.

    Args:
        states: folder of the store.
        layers: whose states the head reads, and the last one, in the head's order.
        dataset: folder of the dataset.
    """

    def __init__(self, states: Path, layers: Sequence[int], dataset: Path) -> None:
        self._states, self._layers, self._dataset = states, list(layers), dataset
        self._reader: ShardReader | None = None
        self._ids: list[str] = []
        self._columns: list[int] = []

    def __getstate__(self) -> dict[str, Any]:
        # The process that loads data opens the store again.
        return {**self.__dict__, "_reader": None}

    def get_cached(self, file_idx: int) -> dict[str, torch.Tensor] | None:
        """Return token ids [num_tokens] and hidden states [num_tokens, num_layers, hidden_size]."""
        if self._reader is None:
            self._open()
        assert self._reader is not None
        sample = self._reader.read(self._ids[file_idx])
        return {
            "token_ids": sample.token_ids,
            "hidden_states": sample.hidden_states[:, self._columns],
        }

    def get_generated(self, hs_transfer_params: dict[str, Any]) -> dict[str, torch.Tensor] | None:
        """Refuse: no engine runs while the head is trained."""
        raise NotImplementedError("hidden states are read from the store alone")

    def _open(self) -> None:
        from datasets import load_from_disk

        self._reader = ShardReader(self._states)
        self._ids = list(load_from_disk(self._dataset).with_format(None)[ID])
        stored = self._reader.layout.layers
        self._columns = [stored.index(layer) for layer in self._layers]


def register(states: Path, layers: Sequence[int]) -> None:
    """Let the trainer find the store under our name.

    Args:
        states: folder of the store.
        layers: whose states the head reads, and the last one, in the head's order.
    """

    class Backend(HiddenStatesBackend):
        @staticmethod
        def add_train_args(parser: argparse.ArgumentParser) -> None:
            """Add none."""

        @staticmethod
        def add_launch_args(parser: argparse.ArgumentParser) -> None:
            """Add none."""

        @staticmethod
        def from_train_args(args: argparse.Namespace, data_path: str) -> HiddenStatesTransfer:
            return ShardTransfer(states, layers, Path(data_path))

        @staticmethod
        def build_kv_transfer_config(args: argparse.Namespace) -> dict[str, Any]:
            raise NotImplementedError("no server of the library's is started")

    HiddenStatesBackend.registry[BACKEND] = Backend
