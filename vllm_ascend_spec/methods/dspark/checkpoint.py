"""Check whether a checkpoint is a DSpark head for its target."""

from __future__ import annotations

from vllm_ascend_spec.checkpoint.architectures import dspark
from vllm_ascend_spec.checkpoint.block_heads import check_block_head
from vllm_ascend_spec.checkpoint.config_json import architecture_of
from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, blame, short_value


def check_dspark(draft: Draft) -> None:
    """Check a DSpark head, against its target if there is one.

    Raises:
        CheckpointError: stating what was found and what is valid.
    """
    found = draft.read("vocab_size")
    target = draft.target_text()
    with blame(draft.option, draft.model):
        architecture = architecture_of(found.config)
        is_old = architecture == dspark.OLD_ARCHITECTURE
        is_qwen3 = found.config.get("model_type") == "qwen3"
        if architecture != dspark.ARCHITECTURE and not (is_old and is_qwen3):
            raise InvalidCheckpointError(
                f"config.json: architectures is {short_value([architecture])}; valid: "
                f"['{dspark.ARCHITECTURE}'], the heads that this package can run"
            )
        check_block_head(found, target, dspark.settings_of, dspark.table_of)
