"""Check whether a checkpoint is an EAGLE-3 head for its target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vllm_ascend_spec.checkpoint.architectures import eagle3, llama
from vllm_ascend_spec.checkpoint.architectures.eagle3 import LAYER_IDS
from vllm_ascend_spec.checkpoint.config_json import architecture_of
from vllm_ascend_spec.checkpoint.draft import Checkpoint, Draft
from vllm_ascend_spec.checkpoint.errors import InvalidCheckpointError, blame, short_value
from vllm_ascend_spec.checkpoint.heads import ABOUT, kind_of, method_of_a_model
from vllm_ascend_spec.checkpoint.masks import check_mask
from vllm_ascend_spec.checkpoint.target_states import Settings, check_layers, check_width
from vllm_ascend_spec.checkpoint.tensors import check_tensors
from vllm_ascend_spec.checkpoint.vocabulary import MAPS, check_map

# Classes of heads that a family's proposer does not support: vllm-ascend 0.30.0rc2 crashes at the
# first draft (vllm_ascend/spec_decode/llm_base_proposer.py:
# AscendSpecDecodeBaseProposer._propose).
UNKNOWN_TO = {"ascend": (eagle3.QWEN3,)}
# vLLM skips this tensor unless drafts are made in parallel.
PARALLEL = "mask_hidden"


def check_eagle3(draft: Draft) -> None:
    """Check an EAGLE-3 head, against its target if there is one.

    Raises:
        CheckpointError: stating what was found and what is valid.
    """
    found = draft.read("vocab_size")
    target = draft.target_text()
    with blame(draft.option, draft.model):
        require_kind(found)
        if eagle3.class_of(found.config) in UNKNOWN_TO.get(draft.family or "", ()):
            raise InvalidCheckpointError(
                f"is a head of {eagle3.class_of(found.config)}, which vllm-ascend does not run; "
                f"valid on an NPU: one of Llama's layers"
            )
        settings = eagle3.settings_of(found.config)
        if draft.in_one_pass:
            check_mask(found.config)
        if target is not None:
            check_target(settings, target)
        if not found.usual_names:
            return
        if draft.in_one_pass:
            check_masked_states(found, settings)
        check_map(found.tensors, settings.draft_vocab, settings.vocab)
        table = eagle3.table_of(found.config, settings, found.tensors)
        if table is not None:
            beside = (*MAPS, PARALLEL)
            tensors = {n: tensor for n, tensor in found.tensors.items() if n not in beside}
            check_tensors(tensors, table, quantized=found.quantized)


def require_kind(found: Checkpoint) -> None:
    """Raise unless the tensors are those of an EAGLE-3 head.

    Raises:
        InvalidCheckpointError: naming the method that fits instead.
    """
    kind = kind_of(found.tensors) if found.usual_names else "eagle3"
    if kind == "eagle":
        raise InvalidCheckpointError(
            "is a head of the first EAGLE (no tensor *.hidden_norm.weight); use method 'eagle'"
        )
    if kind in ("dflash", "dspark"):
        raise InvalidCheckpointError(f"is {ABOUT[kind]}; use method {kind!r}")
    if kind is None:
        hint = method_of_a_model(found.tensors, found.text)
        raise InvalidCheckpointError(
            f"is not an EAGLE-3 head (no tensor *.hidden_norm.weight); {hint}"
        )


def check_masked_states(found: Checkpoint, settings: Settings) -> None:
    """Raise unless a head for parallel drafting has the placeholder for states not known yet.

    Raises:
        InvalidCheckpointError: the tensor is missing, or has another size.
    """
    width = settings.num_states * settings.target_hidden or settings.hidden
    tensor = found.tensors.get(PARALLEL)
    if tensor is None:
        raise InvalidCheckpointError(
            f"has no tensor {PARALLEL}, so it was not trained for parallel_drafting; leave the "
            "option out"
        )
    if math.prod(tensor.shape) != width:
        raise InvalidCheckpointError(
            f"{PARALLEL} in {tensor.path.name} is {tensor.dtype} {short_value(list(tensor.shape))}"
            f"; valid: {width} numbers, the width of the states that it reads"
        )


def check_target(settings: Settings, target: Mapping[str, Any]) -> None:
    """Raise unless the target has the states that a head reads.

    Args:
        settings: settings of the head.
        target: the text part of the target's config.

    Raises:
        InvalidCheckpointError: the states have another width, or their layers do not exist.
    """
    check_width(settings.target_hidden, target)
    layers = target.get("num_hidden_layers")
    if not settings.num_states or not isinstance(layers, int):
        return
    if settings.layer_ids is None:
        _check_default(settings, layers, target)
    else:
        check_layers(settings.layer_ids, LAYER_IDS, layers)


def _check_default(settings: Settings, layers: int, target: Mapping[str, Any]) -> None:
    """Raise if vLLM's default layers do not fit; some models have their own default."""
    if architecture_of(target, llama.BY_MODEL_TYPE) not in llama.VARIANTS:
        return
    default = (2, layers // 2, layers - 3)
    if min(default) < 0 or len(set(default)) != settings.num_states:
        raise InvalidCheckpointError(
            f"config.json has no {LAYER_IDS}, and vLLM's default {list(default)} for a target of "
            f"{layers} layers is not {settings.num_states} of them; name them"
        )
