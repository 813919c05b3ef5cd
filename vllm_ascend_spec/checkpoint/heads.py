"""What kind of draft head a checkpoint is, and whether it has MTP layers, by names of tensors."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from vllm_ascend_spec.checkpoint.architectures.unknown import STACKS
from vllm_ascend_spec.checkpoint.tensors import layers_of

# The projection that joins a token's embedding and the target's state. A head has it outside of its
# layers; in a target with MTP layers its name begins with theirs, such as mtp.fc.
FUSION = re.compile(r"(model\.)?(fc|eagle_linear)\.")
# The norm of the target's states: in a layer next to the embedding's norm, or once for all layers.
ONLY_EAGLE3 = re.compile(r"(model\.)?(midlayer|layers\.\d+)\.hidden_norm\.")
ONLY_DFLASH = "hidden_norm.weight"
ONLY_DSPARK = "markov_head.markov_w1.weight"
# Methods that config.json names: its model type is the method.
BY_MODEL_TYPE = ("medusa", "mlp_speculator")
ABOUT = {
    "eagle": "an EAGLE head",
    "eagle3": "an EAGLE-3 head",
    "dflash": "a DFlash head",
    "dspark": "a DSpark head",
}
MTP = "mtp"


def kind_of(names: Iterable[str]) -> str | None:
    """Return the method whose head has tensors of these names; None for no head known here."""
    names = set(names)
    if ONLY_DFLASH in names:
        return "dspark" if ONLY_DSPARK in names else "dflash"
    if any(map(ONLY_EAGLE3.match, names)):
        return "eagle3"
    return "eagle" if any(map(FUSION.match, names)) else None


def has_mtp_layers(names: Collection[str], config: Mapping[str, Any]) -> bool | None:
    """Tell whether a checkpoint has tensors of MTP layers.

    A part of their names begins with ``mtp``, or they are in layers after those of the model. This
    holds for each class of MTP layers in vLLM's registry (vllm/model_executor/models/registry.py:
    _SPECULATIVE_DECODING_MODELS).

    Args:
        names: names of its tensors.
        config: the text part of its config.

    Returns:
        None if that cannot be told.
    """
    if any(part.startswith(MTP) for name in names for part in name.split(".")):
        return True
    layers = config.get("num_hidden_layers")
    if not isinstance(layers, int):
        return None
    return any(number >= layers for stack in STACKS for number in layers_of(names, stack))


def method_of_a_model(names: Collection[str], config: Mapping[str, Any]) -> str:
    """Return which method to use for a checkpoint that is not a head.

    Args:
        names: names of its tensors.
        config: the text part of its config.
    """
    if has_mtp_layers(names, config):
        return f"it has MTP layers: use method {MTP!r}"
    return "for an ordinary model use method 'draft_model'"
