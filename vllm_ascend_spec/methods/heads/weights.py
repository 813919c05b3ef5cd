"""Load the weights of heads from a folder or a hub into a plain module; safetensors only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors import safe_open

from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, blame, printable
from vllm_ascend_spec.checkpoint.folder import find_folder
from vllm_ascend_spec.checkpoint.hub import MODELSCOPE, current_hub
from vllm_ascend_spec.checkpoint.own_heads import HeadsCheckpoint, require_same
from vllm_ascend_spec.config.draft_heads import require_enough
from vllm_ascend_spec.config.draft_options import MODEL
from vllm_ascend_spec.config.tree_shape import depth_of
from vllm_ascend_spec.errors import CheckpointError

if TYPE_CHECKING:
    from torch import nn

    from vllm_ascend_spec.checkpoint.safetensors import Tensor
    from vllm_ascend_spec.methods.heads.drafter import HeadsDrafter

FILES = ["*.safetensors", "*.json"]
S = TypeVar("S", bound=Any)


def load(
    drafter: HeadsDrafter,
    read: Callable[[Draft], HeadsCheckpoint[S]],
    make: Callable[[HeadsCheckpoint[S]], nn.Module],
) -> nn.Module:
    """Read the draft's folder as ``check`` does, and return its heads.

    Args:
        drafter: the drafter that the heads are for.
        read: reads and checks a checkpoint of the method.
        make: builds the module; its parameters have the names of the checkpoint's tensors.

    Raises:
        ConfigError: the draft cannot be used.
    """
    model, asked = drafter.asked.options["model"], drafter.asked
    folder = fetch(model, asked.options.get("revision"), drafter.load_config.download_dir)
    found = read(Draft(MODEL, model, folder))
    with blame(MODEL, model):
        require_same("width", found.sizes.hidden, "hidden_size", drafter.hidden_size)
        require_same("vocab_size", found.sizes.vocab, "vocab_size", drafter.vocab_size)
    num_steps = asked.max_k if asked.tree is None else depth_of(asked.tree)
    require_enough(found.sizes.num_drafts, num_steps, model)
    with torch.device("meta"):
        heads = make(found).to(drafter.dtype)
    heads = heads.to_empty(device=drafter.device)
    if drafter.load_config.load_format == "dummy":
        make_up(heads)
        return heads
    with blame(MODEL, model):
        fill(heads, found.places)
    return heads


def make_up(heads: nn.Module) -> None:
    """Fill in small random numbers for ``--load-format dummy``; integer tables count up."""
    for value in heads.state_dict().values():
        if value.is_floating_point():
            value.normal_(std=0.02)
        else:
            value.copy_(torch.arange(value.numel()))


def fetch(model: str, revision: str | None, download_dir: str | None) -> Path:
    """Return the folder of a draft; download it from a hub if it is not on this machine.

    Raises:
        CheckpointError: it cannot be found or downloaded.
    """
    folder = find_folder(MODEL, model, revision)
    if folder is not None:
        return folder
    hub = current_hub()
    try:
        if hub.name == MODELSCOPE:
            from modelscope.hub.snapshot_download import (  # type: ignore[import-not-found]
                snapshot_download,
            )
        else:
            from huggingface_hub import snapshot_download
        place = snapshot_download(
            model, revision=revision, cache_dir=download_dir, allow_patterns=FILES
        )
    except (OSError, ValueError, ImportError) as error:
        raise CheckpointError(MODEL, model, f"cannot be fetched from {hub.name}: {error}") from None
    return Path(place)


def fill(heads: nn.Module, places: Mapping[str, list[tuple[str, Tensor]]]) -> None:
    """Copy the tensors of a checkpoint into the parameters and buffers of the same names.

    Raises:
        InvalidCheckpointError: tensors that config.json declares tied differ.
    """
    state = heads.state_dict()
    mine = {name: ours for ours, tied in places.items() for name, _ in tied}
    first: dict[str, str] = {}
    for name, tensor in read(place for tied in places.values() for place in tied):
        own = state[mine[name]]
        value = tensor.to(device=own.device, dtype=own.dtype)
        other = first.setdefault(mine[name], name)
        if other == name:
            own.copy_(value)
        elif not torch.equal(own, value):
            raise InvalidCheckpointError(
                f"{printable(name)} and {printable(other)} differ; config.json says that they "
                "are the same"
            )
    assert first.keys() == state.keys(), first.keys() ^ state.keys()


def read(places: Iterator[tuple[str, Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield tensors with their names in the files, file by file."""
    by_file: dict[Path, list[str]] = {}
    for name, tensor in places:
        by_file.setdefault(tensor.path, []).append(name)
    for path, names in by_file.items():
        with safe_open(path, framework="pt") as file:
            for name in names:
                yield name, file.get_tensor(name)
