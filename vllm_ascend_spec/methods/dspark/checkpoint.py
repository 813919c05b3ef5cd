"""Check whether a checkpoint is a DSpark head for its target."""

from __future__ import annotations

from vllm_ascend_spec.checkpoint.architectures import dflash, dspark
from vllm_ascend_spec.checkpoint.config_json import architecture_of
from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, blame, short_value
from vllm_ascend_spec.checkpoint.masks import check_mask
from vllm_ascend_spec.checkpoint.tensors import check_tensors
from vllm_ascend_spec.checkpoint.vocabulary import MAPS, check_map


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
        check_mask(found.config)
        settings = dspark.settings_of(found.config)
        if target is not None:
            dflash.check_target(settings, target)
        if not found.usual_names:
            return
        check_map(found.tensors, settings.draft_vocab, settings.vocab)
        tensors = {name: tensor for name, tensor in found.tensors.items() if name not in MAPS}
        table = dspark.table_of(found.config, settings)
        check_tensors(tensors, table, quantized=found.quantized)
