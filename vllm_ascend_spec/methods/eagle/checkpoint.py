"""Check whether a checkpoint is an EAGLE head for its target."""

from __future__ import annotations

from vllm_ascend_spec.checkpoint.architectures import eagle_llama
from vllm_ascend_spec.checkpoint.config_json import architecture_of
from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, blame
from vllm_ascend_spec.checkpoint.heads import ABOUT, kind_of, method_of_a_model
from vllm_ascend_spec.checkpoint.tensors import check_tensors


def check_eagle(draft: Draft) -> None:
    """Check an EAGLE head, against its target if there is one.

    Raises:
        CheckpointError: stating what was found and what is valid.
    """
    found = draft.read("vocab_size", "hidden_size")
    with blame(draft.option, draft.model):
        kind = kind_of(found.tensors)
        if kind in ("eagle3", "dflash", "dspark"):
            raise InvalidCheckpointError(f"is {ABOUT[kind]}; use method {kind!r}")
        if kind is None:
            hint = method_of_a_model(found.tensors, found.text)
            raise InvalidCheckpointError(f"is not an EAGLE head (no tensor fc.weight); {hint}")
        table = eagle_llama.table_of(architecture_of(found.config), found.config)
        if table is not None and found.usual_names:
            check_tensors(found.tensors, table, quantized=found.quantized)
