"""Check whether a checkpoint contains layers for multi-token prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.checkpoint.architectures import deepseek_mtp, llama, mimo_mtp
from vllm_ascend_spec.checkpoint.config_json import architecture_of
from vllm_ascend_spec.checkpoint.draft import Checkpoint, Draft
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, blame, short_value
from vllm_ascend_spec.checkpoint.heads import (
    BY_MODEL_TYPE,
    MTP,
    has_mtp_layers,
    kind_of,
)
from vllm_ascend_spec.checkpoint.tensors import check_tensors, layers_of
from vllm_ascend_spec.methods.mtp.checkpoint_assistant import check_assistant, is_assistant

# Model types that draft with one layer per step; vLLM has a separate proposer for them.
OTHER_PROPOSERS = frozenset(("step3p5", "step3p7", "step3p5_mtp"))
THEIR_ARCHITECTURES = frozenset(("Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"))
FAMILIES = (deepseek_mtp, mimo_mtp)


def check_mtp(draft: Draft) -> None:
    """Check a model's MTP layers, against its target if that is in another folder.

    vLLM checks families that have no table of tensors here.

    Raises:
        CheckpointError: stating what was found and what is valid.
    """
    found = draft.read("vocab_size")
    if is_assistant(found.config):
        check_assistant(draft, found)
        return
    draft.read("hidden_size")
    with blame(draft.option, draft.model):
        model_type = found.text.get("model_type")
        kind = kind_of(found.tensors) if found.usual_names else None
        if model_type in BY_MODEL_TYPE or kind is not None:
            method = kind or model_type
            raise InvalidCheckpointError(
                f"is a draft head and not a model with MTP layers; use method {method!r}"
            )
        architecture = architecture_of(found.config, llama.BY_MODEL_TYPE)
        require_our_loop(architecture, found.config, found.text)
        require_layers(architecture, found.text)
        if found.usual_names:
            require_tensors(found)
        for family in FAMILIES:
            table = family.table_of(architecture, found.config)
            if table is not None and found.usual_names:
                numbers = {
                    number
                    for number in layers_of(found.tensors, table.stack)
                    if number >= table.first
                }
                stems = tuple(f"{table.stack}{number}." for number in numbers)
                own = {n: tensor for n, tensor in found.tensors.items() if n.startswith(stems)}
                check_tensors(own, table, quantized=found.quantized)


def require_our_loop(architecture: str, config: Mapping[str, Any], text: Mapping[str, Any]) -> None:
    """Raise if vLLM runs a model's MTP layers in a proposer that this package does not extend.

    Raises:
        InvalidCheckpointError: naming the model.
    """
    types = [part.get("model_type") for part in (config, text)]
    found = next((name for name in types if name in OTHER_PROPOSERS), None)
    if found is not None or architecture in THEIR_ARCHITECTURES:
        what = f"model_type {found!r}" if found is not None else architecture
        raise InvalidCheckpointError(
            f"is of {what}, for whose MTP layers vLLM has a draft loop of its own; "
            "not supported by this release"
        )


def require_tensors(found: Checkpoint) -> None:
    """Raise if a model's config declares MTP layers that its files do not contain.

    vLLM finds that out after loading the target, or drafts with uninitialized weights.

    Raises:
        InvalidCheckpointError: the files have no tensor of these layers.
    """
    if has_mtp_layers(found.tensors, found.text) is False:
        first = found.text["num_hidden_layers"]
        raise InvalidCheckpointError(
            f"has no tensor model.layers.{first}.* and none called {MTP}*, so its MTP layers were "
            "left out; use a checkpoint that has them, or another method"
        )


def require_layers(architecture: str, config: Mapping[str, Any]) -> None:
    """Raise if a model is known to have no MTP layers.

    Raises:
        InvalidCheckpointError: it has none.
    """
    if architecture in llama.VARIANTS:
        raise InvalidCheckpointError(
            f"has no MTP layers, as no {architecture} has; use another method"
        )
    counted = any(architecture in family.ARCHITECTURES for family in FAMILIES)
    count = config.get("num_nextn_predict_layers")
    is_some = isinstance(count, int) and not isinstance(count, bool) and count > 0
    if counted and not is_some:
        given = f"is {short_value(count)}" if "num_nextn_predict_layers" in config else "is missing"
        raise InvalidCheckpointError(
            f"has no MTP layers: num_nextn_predict_layers in config.json {given}; valid: a whole "
            "number from 1 on"
        )
