"""Check a head that fills a block of masks: DFlash's, or DSpark's, which has more tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vllm_ascend_spec.checkpoint.architectures import dflash
from vllm_ascend_spec.checkpoint.draft import Checkpoint
from vllm_ascend_spec.checkpoint.masks import check_mask
from vllm_ascend_spec.checkpoint.target_states import Settings
from vllm_ascend_spec.checkpoint.tensors import Table, check_tensors
from vllm_ascend_spec.checkpoint.vocabulary import MAPS, check_map

Config = Mapping[str, Any]


def check_block_head(
    found: Checkpoint,
    target: Config | None,
    settings_of: Callable[[Config], Settings],
    table_of: Callable[[Config, Settings], Table],
) -> None:
    """Check a head's config and tensors, against its target if there is one.

    Args:
        found: the head.
        target: the config of the target's text model; None if it is not known.
        settings_of: reads the config of such a head.
        table_of: returns the tensors of such a head.

    Raises:
        InvalidCheckpointError: stating what was found and what is valid.
    """
    check_mask(found.config)
    settings = settings_of(found.config)
    if target is not None:
        dflash.check_target(settings, target)
    if not found.usual_names:
        return
    check_map(found.tensors, settings.draft_vocab, settings.vocab)
    tensors = {name: tensor for name, tensor in found.tensors.items() if name not in MAPS}
    check_tensors(tensors, table_of(found.config, settings), quantized=found.quantized)
