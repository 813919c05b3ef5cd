"""Check whether a checkpoint is an EAGLE head for its target."""

from __future__ import annotations

from vllm_ascend_spec.config.checkpoint.config_json import architecture_of
from vllm_ascend_spec.config.checkpoint.draft import Draft
from vllm_ascend_spec.config.checkpoint.families import eagle_llama
from vllm_ascend_spec.config.checkpoint.heads import ABOUT, kind_of, method_of_a_model
from vllm_ascend_spec.config.checkpoint.problem import UnusableError, laid_to
from vllm_ascend_spec.config.checkpoint.tensors import check_tensors


def check_eagle(draft: Draft) -> None:
    """Check an EAGLE head, against its target if there is one.

    Raises:
        CheckpointError: stating what was found and what is valid.
    """
    found = draft.read("vocab_size", "hidden_size")
    with laid_to(draft.option, draft.model):
        kind = kind_of(found.tensors)
        if kind in ("eagle3", "dflash"):
            raise UnusableError(f"is {ABOUT[kind]}; use method {kind!r}")
        if kind is None:
            hint = method_of_a_model(found.tensors, found.text)
            raise UnusableError(f"is not an EAGLE head (no tensor fc.weight); {hint}")
        table = eagle_llama.table_of(architecture_of(found.config), found.config)
        if table is not None and found.usual_names:
            check_tensors(found.tensors, table, quantized=found.quantized)
