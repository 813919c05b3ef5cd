"""Check whether a checkpoint is a DFlash head for its target."""

from __future__ import annotations

from vllm_ascend_spec.checkpoint.architectures import dflash
from vllm_ascend_spec.checkpoint.block_heads import check_block_head
from vllm_ascend_spec.checkpoint.config_json import architecture_of
from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, blame, short_value
from vllm_ascend_spec.checkpoint.speculators import DFLASH2_ARCHITECTURE, NO_DFLASH2


def check_dflash(draft: Draft) -> None:
    """Check a DFlash head, against its target if there is one.

    Raises:
        CheckpointError: stating what was found and what is valid.
    """
    found = draft.read("vocab_size")
    target = draft.target_text()
    with blame(draft.option, draft.model):
        architecture = architecture_of(found.config)
        if architecture == DFLASH2_ARCHITECTURE:
            raise InvalidCheckpointError(
                f"config.json: architectures is {short_value([architecture])}: {NO_DFLASH2}"
            )
        if architecture != dflash.ARCHITECTURE:
            raise InvalidCheckpointError(
                f"config.json: architectures is {short_value([architecture])}; valid: "
                f"['{dflash.ARCHITECTURE}'], the heads that the V1 model runner has"
            )
        check_block_head(found, target, dflash.settings_of, dflash.table_of)
