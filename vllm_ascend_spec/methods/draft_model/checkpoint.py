"""Check whether a checkpoint is an ordinary model that can draft for its target."""

from __future__ import annotations

import re

from vllm_ascend_spec.checkpoint.architectures import llama, unknown
from vllm_ascend_spec.checkpoint.config_json import architecture_of
from vllm_ascend_spec.checkpoint.draft import Draft
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, blame
from vllm_ascend_spec.checkpoint.heads import ABOUT, BY_MODEL_TYPE, kind_of
from vllm_ascend_spec.checkpoint.masks import check_mask
from vllm_ascend_spec.checkpoint.recurrent import with_state
from vllm_ascend_spec.checkpoint.tensors import check_tensors

EAGLE = re.compile(r"Eagle\w+ForCausalLM")


def check_draft_model(draft: Draft) -> None:
    """Check an ordinary draft model, against its target if there is one.

    Raises:
        CheckpointError: stating what was found and what is valid.
    """
    found = draft.read("vocab_size")
    with blame(draft.option, draft.model):
        if (model_type := found.config.get("model_type")) in BY_MODEL_TYPE:
            raise InvalidCheckpointError(f"is not an ordinary model; use method {model_type!r}")
        architecture = architecture_of(found.config, llama.BY_MODEL_TYPE)
        if (kind := kind_of(found.tensors)) in ("eagle3", "dflash", "dspark"):
            raise InvalidCheckpointError(f"is {ABOUT[kind]}; use method {kind!r}")
        if "fc.weight" in found.tensors or EAGLE.fullmatch(architecture):
            raise InvalidCheckpointError("is an EAGLE head; use method 'eagle'")
        if (stateful := with_state(found.config)) is not None:
            raise InvalidCheckpointError(
                f"is of {stateful}, whose layers keep a state, but vLLM 0.30 drafts only with "
                "attention layers; use another draft, or another method"
            )
        if draft.in_one_pass:
            check_mask(found.config)
        table = llama.table_of(architecture, found.config)
        if not found.usual_names:
            return
        if table is None:
            unknown.check(found.tensors, found.text, quantized=found.quantized)
        else:
            check_tensors(found.tensors, table, quantized=found.quantized)
